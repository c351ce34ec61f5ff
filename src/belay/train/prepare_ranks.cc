#include "belay/train/prepare_ranks.h"

#include <filesystem>

#include "belay/base/file.h"
#include "belay/base/log.h"

namespace belay {
namespace {

void record_plan(const Plan& plan, const RankGroup& ranks, const RunSetup& setup,
                 const std::string& run_dir) {
  const std::filesystem::path dir = run_dir;
  write_file((dir / "plan.json").string(), plan_to_json(plan));
  write_file((dir / "config.toml").string(), to_toml(effective_config(setup)));
  const bool alone = ranks.size() == 1;
  log::info("{} parameters, {} tokens a step{}, memory plan{}:\n{}", setup.table.parameter_count(),
            plan.tokens_per_step, alone ? "" : fmt::format(" on {} ranks", ranks.size()),
            alone ? "" : " of each", describe_memory(plan));
  log::info("predicted step: {:.1f} ms, {:.0f} tokens/s", plan.predicted.step_ms,
            plan.predicted.tokens_per_s);
}

}  // namespace

Prepared prepare_ranks(const RankGroup& ranks, const HostPlace& host, RunSetup& setup,
                       const Replicas& replicas, const std::string& run_dir) {
  PlanningOptions planning = planning_options(setup.config);
  planning.progress = [](const std::string& line) { log::info("{}", line); };
  planning.step_tokens = setup.config.train.global_batch * setup.seq_len;
  planning.ranks_on_host = host.ranks;
  planning.exchange_bytes = replicas.bytes(setup.table);
  ProgramConfig program = program_config(setup);
  program.shard = replicas.sharding();
  Prepared prepared;
  // One rank of every host asks for the memory of all there, before any of them takes its part.
  ranks.together([&] {
    if (ranks.first()) {
      prepared = prepare_program(*setup.device, setup.table, program, planning);
      record_plan(prepared.plan, ranks, setup, run_dir);
    } else if (host.rank == 0) {
      require_plan_fits(*setup.device, setup.table, program, planning);
    }
  });
  MatmulChoices& choices = setup.device->matmul_choices();
  const std::string chosen = ranks.share(ranks.first() ? choices_to_json(choices) : "");
  ranks.together([&] {
    if (ranks.first()) return;
    choices_from_json(chosen, "the first rank", choices);
    planning.choose = planning.calibrate = false;
    planning.ranks_on_host = 1;  // all have been asked for, and some take their parts already
    prepared = prepare_program(*setup.device, setup.table, program, planning);
  });
  return prepared;
}

}  // namespace belay
