// belay doctor desync

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "belay/cli/commands.h"
#include "belay/doctor/desync_report.h"

namespace belay {

void add_doctor_desync(CLI::App& doctor) {
  struct Arguments {
    std::string directory;
    bool json = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* const command = doctor.add_subcommand(
      "desync", "Which rank brought a run to a stand, from the flight records of its ranks");
  command->add_option("DIR", arguments->directory, "Run directory, or where the records are")
      ->required();
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "Example:\n"
      "  belay doctor desync runs/four\n"
      "Ends with 0 when the records could be judged, whatever they say, with 3 when there is "
      "none.");
  command->callback([arguments] {
    const DesyncReport report = desync_report(read_flight_records(arguments->directory));
    fmt::print("{}", arguments->json ? report_json(report) : report_text(report));
  });
}

}  // namespace belay
