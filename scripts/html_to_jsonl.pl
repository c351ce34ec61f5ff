#!/usr/bin/perl
# Turns HTML pages into one JSON line each: {"text": ...}. Reads file names from standard input,
# works on bytes (UTF-8 in, UTF-8 out), and leaves out pages with hardly any text. An argument is
# the least share of a page's bytes that must be Chinese characters, which leaves out pages that
# nobody has translated. Needs nothing beyond Debian's perl-base.
use strict;
use warnings;

my $smallest = 200;    # bytes of text worth a document

my $least_han = @ARGV ? $ARGV[0] : 0;

my %entity = (lt => '<', gt => '>', amp => '&', quot => '"', apos => "'", nbsp => ' ');

sub utf8_bytes {
    my ($code) = @_;
    return ' ' if $code < 0x20 || $code == 0xA0 || $code > 0x10FFFF;
    my $text = chr($code);
    utf8::encode($text);
    return $text;
}

sub page_text {
    my ($html) = @_;
    # The page proper: after the navigation that opens it, before the one that closes it.
    $html =~ s/^.*?<div id="DisplayArea"[^>]*>//s
      or $html =~ s/^.*?<ul class="docnav top">.*?<\/ul>//s
      or $html =~ s/^.*?<body[^>]*>//s;
    $html =~ s/<ul class="docnav">.*$//s;
    $html =~ s/<div class="nav(?:header|footer)">.*?<\/table>//sg;
    $html =~ s/<!--.*?-->//sg;
    $html =~ s/<(script|style|nav|button|aside)\b.*?<\/\1>//sg;
    $html =~ s/<dl class="toc">.*<\/dl>//sg;

    # Line breaks inside prose are spaces; inside <pre> they stay.
    my $text = '';
    for my $part (split /(<pre\b.*?<\/pre>)/s, $html) {
        $part =~ s/\s+/ /g unless $part =~ /^<pre\b/;
        $text .= $part;
    }
    $text =~ s/<\/?(?:p|div|h[1-6]|li|ul|ol|dl|dt|dd|table|tr|pre|blockquote|section|br)\b[^>]*>/\n/g;
    $text =~ s/<\/?t[dh]\b[^>]*>/ /g;
    $text =~ s/<[^>]*>//g;
    $text =~ s/&#x([0-9a-fA-F]{1,6});/utf8_bytes(hex $1)/ge;
    $text =~ s/&#([0-9]{1,7});/utf8_bytes($1)/ge;
    $text =~ s/&([a-z]+);/exists $entity{$1} ? $entity{$1} : "&$1;"/ge;
    $text =~ s/\xC2\xA0/ /g;         # no-break space
    $text =~ s/\xE2\x80\x8B//g;      # zero-width space
    $text =~ s/[ \t]+/ /g;
    $text =~ s/ ?\n ?/\n/g;
    $text =~ s/\n{2,}/\n/g;
    $text =~ s/\nHelp content debug info:.*//s;
    $text =~ s/^\s+|\s+$//g;
    return $text;
}

# Bytes that belong to U+4000 to U+9FFF, where nearly all Chinese characters are.
sub han_bytes {
    my ($text) = @_;
    my $count = () = $text =~ /[\xE4-\xE9][\x80-\xBF]{2}/g;
    return 3 * $count;
}

sub json_string {
    my ($text) = @_;
    $text =~ s/(["\\])/\\$1/g;
    $text =~ s/\n/\\n/g;
    $text =~ s/([\x00-\x1F])/sprintf '\\u%04x', ord $1/ge;
    return "\"$text\"";
}

while (my $path = <STDIN>) {
    chomp $path;
    open my $file, '<:raw', $path or die "html_to_jsonl: cannot read $path: $!\n";
    my $html = do { local $/; <$file> };
    close $file;
    my $text = page_text($html);
    next if length $text < $smallest || han_bytes($text) < $least_han * length $text;
    print '{"text": ', json_string($text), "}\n";
}
