// What several files of the page's script share.

interface Scale {
  (value: number): number;
  low: number;
  high: number;
  ticks(count?: number): number[];
  invert?(pixel: number): number;
  logarithmic?: boolean;
  cut?: boolean;
}

interface AxisOptions {
  format?: (value: number) => string;
  count?: number;
  title?: string;
  rules?: boolean;
  ticks?: number[] | null;
}

interface Tip {
  title: string;
  rows?: [string, string][];
}

interface BarPart {
  name: string;
  value: number;
  colour: number;
}

interface Bar {
  parts: BarPart[];
  text: string;
  rows?: [string, string][];
}
