/** The given quantile (0 to 1) of the values. */
export function quantile(values: number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))] ?? Number.NaN;
}

export const median = (values: number[]): number => quantile(values, 0.5);

/** Prints one section: a title and rows whose columns line up. */
export function section(title: string, rows: string[][]): void {
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0))) ?? [];
  console.log(`\n${title}`);
  for (const row of rows)
    console.log(`  ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ')}`.trimEnd());
}

export const ms = (value: number): string => `${value.toFixed(value < 10 ? 2 : 0)} ms`;

/** Whether a title has one of the texts in the variable, separated by commas; all have when it is not set. */
export function isWanted(variable: 'BENCH_ROWS' | 'BENCH_COLUMNS', title: string): boolean {
  return (process.env[variable] ?? '').split(',').some((text) => title.includes(text));
}
