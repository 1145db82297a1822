import { type Finding, quantile, seconds } from './finding.ts';

/** Facts about the run besides its findings. */
export interface Run {
  /** ISO 8601, without the time. */
  date: string;
  version: string;
  /** One phrase each, for example the processor. */
  machine: readonly string[];
  minutes: number;
}

/** The report's chapters: a title, and the test files with its findings. */
const CHAPTERS: readonly [title: string, files: readonly string[]][] = [
  ['Power', ['kill', 'event-kills', 'power', 'crash', 'durable-file']],
  ['Disks', ['disk']],
  ['Networks', ['outage', 'long-outage', 'network', 'start', 'shown-state', 'hung-upstream', 'slow-clients']],
  ['A fleet', ['fleet', 'joining']],
  ['Long running', ['resources', 'idle']],
  ['Stopping', ['stop', 'restart']],
  ['Keys and certificates', ['acme-orders', 'key-change', 'ca-change-kills']],
];

/**
 * The report of a run, as Markdown.
 *
 * @throws Error when a test file with findings has no chapter
 */
export function faultReport(findings: readonly Finding[], run: Run): string {
  const unlisted = findings.find(({ file }) => !CHAPTERS.some(([, files]) => files.includes(file)));
  if (unlisted) throw new Error(`the report has no chapter for the findings of ${unlisted.file}.test.ts`);
  const chapters = CHAPTERS.flatMap(([title, files]) => {
    const own = findings.filter(({ file }) => files.includes(file));
    return own.length === 0 ? [] : [`## ${title}\n\n${table(merge(own))}`];
  });
  return `${introduction(run, findings)}\n\n${chapters.join('\n\n')}\n`;
}

function introduction({ date, version, machine, minutes }: Run, findings: readonly Finding[]): string {
  const tried = findings.reduce((sum, finding) => sum + finding.tried, 0);
  return `# Reliability

\`npm run faults -- --report\` writes this page: faults provoked on purpose, ${count(tried)} times, and their results.

- **Lost** counts what was acknowledged, online or on disk before the fault and missing after it: tunnels, names, records of
  the gateway. Each fault is a test that fails when anything is lost, and a run with a failure writes no report. This column
  is therefore always zero.
- **Tried** and **recovery** are the interesting columns. Recovery runs from the end of the fault until a client gets an
  answer from the device again, measured per tunnel, unless the fault's name says otherwise.
- **Conditions:** the real agent and the real SDK, mostly in separate processes. Agent, gateway, clients and network share one
  machine, so the times show what these programs add, not what a mobile link or an SD card does.
- **Power cuts are simulated:** the process is killed, and data that was not synced is removed. No device was unplugged.

Run on ${date} with version ${version}, for ${count(minutes)} minutes: ${machine.join('; ')}.`;
}

interface Row extends Omit<Finding, 'file' | 'note'> {
  notes: string[];
}

/** One row for each fault, even with findings of several tests. */
function merge(findings: readonly Finding[]): Row[] {
  const rows = new Map<string, Row>();
  for (const { fault, tried, lost, recovery, note } of findings) {
    const row = rows.get(fault) ?? { fault, tried: 0, lost: 0, recovery: [], notes: [] };
    rows.set(fault, {
      fault,
      tried: row.tried + tried,
      lost: row.lost + lost,
      recovery: [...row.recovery, ...recovery],
      notes: note === '' ? row.notes : [...row.notes, note],
    });
  }
  return [...rows.values()];
}

function table(rows: readonly Row[]): string {
  const lines = rows.map(({ fault, tried, lost, recovery, notes }) => {
    const times = [0.5, 0.99, 1].map((share) => (recovery.length === 0 ? '–' : seconds(quantile(recovery, share))));
    return `| ${[fault, count(tried), count(lost), ...times, notes.join('; ')].map(cell).join(' | ')} |`;
  });
  return [
    '| Fault | Tried | Lost | p50 | p99 | max | |',
    '| --- | ---: | ---: | ---: | ---: | ---: | --- |',
    ...lines,
  ].join('\n');
}

const cell = (text: string) => text.replaceAll('|', '\\|');
const count = (value: number) => value.toLocaleString('en');
