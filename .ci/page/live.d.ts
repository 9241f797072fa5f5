// Of pgstrata.watch.follow and pgstrata.report.html.

interface LiveSecond { t_s: number; tps: number; latency_ms: number | null; }

interface LiveRunning {
  trial: string; host: string; stack: string; block: number; step: string; step_s: number;
  expected_s: number | null; seconds: LiveSecond[];
}

interface LiveProgress {
  name: string; state: string; primary: string; stacks: string[]; shapes: string[];
  trials: Record<string, Record<string, number>>;
  finished: number; blocks: number; stage: string; reason: string; block_trials: number; block_finished: number;
  machine_time_s: number; budget_left_s: number | null; block_left_s: number | null;
  running: LiveRunning[];
  incidents: { trial: string; stack: string; status: string; reason: string }[];
  unreadable_lines: number;
}

interface LiveVerdict {
  trials: number; unreadable: number; drawing: Drawing;
  cells: { title: string; words: string[]; rows: string[][] }[];
}
