import { appendFileSync } from 'node:fs';
import { basename } from 'node:path';
import { expect } from 'vitest';
import { CHOSEN_CONNECTOR } from './connectors.ts';
import { FINDINGS_VARIABLE, type Finding, type Measurement, quantile, seconds } from './finding.ts';

/** Prints a measured result, and saves it for the report if one is requested. */
export function measured({ fault: name, tried = 1, lost = 0, recovery = [], note = '' }: Measurement): void {
  const fault = CHOSEN_CONNECTOR === 'sdk' ? name : `${name}, ${CHOSEN_CONNECTOR} connector`;
  const facts = [`tried ${tried}`, `lost ${lost}`, ...(recovery.length > 0 ? [figures(recovery)] : []), note];
  process.stdout.write(`  measured: ${fault}: ${facts.filter(Boolean).join(', ')}\n`);
  const target = process.env[FINDINGS_VARIABLE];
  if (target === undefined) return;
  const file = basename(expect.getState().testPath ?? '', '.test.ts');
  // One atomic append: several processes share the file.
  appendFileSync(target, `${JSON.stringify({ file, fault, tried, lost, recovery, note } satisfies Finding)}\n`);
}

function figures(times: readonly number[]): string {
  const [p50, p99, max] = [0.5, 0.99, 1].map((share) => seconds(quantile(times, share)));
  return `recovered ${times.length} times: p50 ${p50}, p99 ${p99}, max ${max}`;
}
