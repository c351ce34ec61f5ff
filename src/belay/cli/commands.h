#pragma once
// The subcommands. Each has one file cli/NAME.cc whose add_NAME registers its options and a
// callback; the callback reports failure by throwing belay::Error.

namespace CLI {
class App;
}

namespace belay {

void add_pack(CLI::App& app);
void add_train(CLI::App& app);
void add_plan(CLI::App& app);
void add_eval(CLI::App& app);
void add_generate(CLI::App& app);
void add_snapshot(CLI::App& app);
void add_watch(CLI::App& app);
void add_doctor(CLI::App& app);
void add_doctor_desync(CLI::App& doctor);
void add_bench(CLI::App& app);

}  // namespace belay
