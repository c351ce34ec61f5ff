// belay doctor forecast

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "belay/base/error.h"
#include "belay/base/file.h"
#include "belay/cli/commands.h"
#include "belay/cli/terminal.h"
#include "belay/doctor/forecast_report.h"

namespace belay {
namespace {

struct Arguments {
  std::string run;
  std::string svg;
  bool json = false;
  ForecastOptions options;
};

void run_forecast(const Arguments& arguments) {
  const std::filesystem::path path =
      std::filesystem::path(arguments.run) / std::string(kGradientRecordName);
  if (!std::filesystem::exists(path)) {
    fail(ExitCode::data,
         "{} does not exist: give the directory of a run that was trained with "
         "precision.record_norms = true",
         path.string());
  }
  const ForecastReport report =
      forecast_report(read_gradient_record(path.string()), arguments.options);
  if (!arguments.svg.empty()) write_file(arguments.svg, draw_svg(report.plot));
  if (arguments.json) {
    fmt::print("{}", report_json(report));
    return;
  }
  constexpr int kHeight = 18;
  fmt::print("{}\n{}\n{}", report.plot.title, draw_text(report.plot, terminal_width(), kHeight),
             report_text(report));
}

}  // namespace

void add_doctor(CLI::App& app) {
  CLI::App* const doctor = app.add_subcommand("doctor", "Judge a run by what it recorded");
  doctor->require_subcommand(1);
  add_doctor_desync(*doctor);
  auto arguments = std::make_shared<Arguments>();
  CLI::App* const command = doctor->add_subcommand(
      "forecast", "Forecast each layer's gradient norm and how long it stays in the head room");
  PrecisionConfig& settings = arguments->options.settings;
  command->add_option("RUN", arguments->run, "Run directory")->required();
  command
      ->add_option("--at", arguments->options.at,
                   "Forecast as of this step and compare with what came of it")
      ->check(CLI::PositiveNumber);
  command->add_option("--layer", arguments->options.layer,
                      "Layer to draw (default: the one nearest to the head room)");
  command
      ->add_option("--limit", arguments->options.limit,
                   "Largest scaled norm, such as 65504 for f16 (default: the run's)")
      ->check(CLI::PositiveNumber);
  command->add_option("--horizon", settings.forecast_horizon, "Steps ahead")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command->add_option("--confidence", settings.forecast_confidence, "Of the band")
      ->check(CLI::Range(0.01, 0.9999))
      ->capture_default_str();
  command->add_option("--history", settings.forecast_history, "Steps to learn from")
      ->check(CLI::Range(32, 65536))
      ->capture_default_str();
  command->add_option("--block", settings.forecast_block, "Steps averaged into one point")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--svg", arguments->svg, "Also write the curve as an SVG picture");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "Examples:\n"
      "  belay doctor forecast runs/first --svg forecast.svg\n"
      "  belay doctor forecast runs/first --at 1000 --layer layers.3");
  command->callback([arguments] { run_forecast(*arguments); });
}

}  // namespace belay
