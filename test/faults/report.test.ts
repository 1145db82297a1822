import { expect, it } from 'vitest';
import { faultReport } from '../support/fault-report.ts';
import type { Finding } from '../support/finding.ts';

const RUN = { date: '2030-01-02', version: '1.2.3', machine: ['2 × processor', 'Linux'], minutes: 20 };
const finding = (more: Partial<Finding>): Finding => ({
  file: 'outage',
  fault: 'a fault',
  tried: 1,
  lost: 0,
  recovery: [],
  note: '',
  ...more,
});

it('has a row for each fault with all its findings', () => {
  const report = faultReport(
    [
      finding({ fault: 'silence', tried: 0, note: 'noticed after 18.00 s' }),
      finding({ fault: 'silence', tried: 2000, recovery: [300, 100] }),
      finding({ fault: 'silence', tried: 1, lost: 3, recovery: [5000] }),
      finding({ file: 'kill', fault: 'kill | -9', tried: 7 }),
    ],
    RUN,
  );
  const rows = report.split('\n').filter((line) => line.startsWith('| '));
  expect(rows).toEqual([
    '| Fault | Tried | Lost | p50 | p99 | max | |',
    '| --- | ---: | ---: | ---: | ---: | ---: | --- |',
    '| kill \\| -9 | 7 | 0 | – | – | – |  |',
    '| Fault | Tried | Lost | p50 | p99 | max | |',
    '| --- | ---: | ---: | ---: | ---: | ---: | --- |',
    '| silence | 2,001 | 3 | 0.30 s | 5.00 s | 5.00 s | noticed after 18.00 s |',
  ]);
  expect(report).toContain('provoked on purpose, 2,008 times');
  expect(report).toContain('Run on 2030-01-02 with version 1.2.3, for 20 minutes: 2 × processor; Linux.');
});

it('includes every finding', () => {
  expect(() => faultReport([finding({ file: 'elsewhere' })], RUN)).toThrow(
    /no chapter for the findings of elsewhere\.test\.ts/,
  );
});
