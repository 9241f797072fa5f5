// Of pgstrata.report.pictures.drawing; a test keeps the two equal.

interface Drawing {
  primary: string;
  margin: number;
  zero_below: number;
  stacks: string[];
  shapes: string[];
  metrics: Record<string, Metric>;
  cells: DrawnCell[];
  runs: DrawnRun[];
  loads: DrawnLoad[];
  spaces: DrawnSpace[];
  drift: DrawnDrift[];
  times: DrawnTime[];
}

interface Metric {
  name: string;
  scale: "ratio" | "difference";
  better: "higher" | "lower";
  unit: "TPS" | "NOPM" | "TPM" | "tpmC" | "req/s" | "QPS" | "IOPS" | "MB/s" | "ms" | "s" | "%" | "bytes" | "per hour" | "";
  title: string;
  phrase: string;
}

interface DrawnCell {
  id: string;
  title: string;
  script: string;
  scale: number;
  memory_share: number | null;
  clients: number;
  rate: number | null;
  ranking: number[];
  metrics: Record<string, DrawnMetric[]>;
  logarithmic: string[];
  percentiles: Record<string, number>[];
}

interface DrawnRun {
  stack: number;
  cell: number;
  block: number;
  trial: string;
  tps: number;
  valid: boolean;
  stage: string;
  typical: boolean;
  series: RunSeries | null;
  devices: DeviceSeries[];
}

interface DrawnLoad {
  stack: number;
  scale: number;
  how: string;
  trials: number;
  total_s: number;
  phases_s: Record<string, number>;
}

interface DrawnSpace {
  stack: number;
  cell: number;
  physical_loaded: number | null;
  database_loaded: number | null;
  physical_after: number | null;
  wal: number | null;
  wal_per_transaction: number | null;
}

interface DrawnDrift {
  stack: number;
  cell: number;
  block: number;
  trial: string;
  deviation: number;
}

interface DrawnTime {
  stack: number;
  cell: number;
  runs: number;
  time_ms: number;
  parts_ms: Record<string, number>;
}

interface DrawnMetric {
  stack: number;
  estimate: number | null;
  low: number | null;
  high: number | null;
  count: number;
  runs: (number | null)[];
  trials: string[];
  blocks: (number | null)[];
}

interface RunSeries {
  width_s: number;
  mean: (number | null)[];
  low: (number | null)[] | null;
  high: (number | null)[] | null;
  smooth: (number | null)[] | null;
  latency: (number | null)[];
  checkpoints: [number, number, string][];
  stalls: [number, number][];
}

interface DeviceSeries {
  device: string;
  role: string;
  width_s: number;
  read_bytes: (number | null)[];
  write_bytes: (number | null)[];
  writes: (number | null)[];
  flushes: (number | null)[];
  utilisation: (number | null)[];
}
