import { type Finding, quantile, seconds } from './finding.ts';

/** What the report says of the run besides its findings. */
export interface Run {
  /** ISO 8601, the day alone. */
  date: string;
  version: string;
  /** One phrase each, such as the processor. */
  machine: readonly string[];
  minutes: number;
}

/** The report's chapters: a title, and the test files whose findings it shows. */
const CHAPTERS: readonly [title: string, files: readonly string[]][] = [
  ['Power', ['kill', 'power', 'crash', 'durable-file']],
  ['Disks', ['disk']],
  ['Networks', ['outage', 'long-outage', 'network', 'start']],
  ['A fleet', ['fleet']],
  ['Long running', ['resources', 'idle']],
  ['Stopping', ['stop']],
];

/**
 * The report of a run, as Markdown.
 *
 * @throws Error when a finding comes from a file that has no chapter
 */
export function faultReport(findings: readonly Finding[], run: Run): string {
  const homeless = findings.find(({ file }) => !CHAPTERS.some(([, files]) => files.includes(file)));
  if (homeless) throw new Error(`the findings of ${homeless.file}.test.ts have no chapter in the report`);
  const chapters = CHAPTERS.flatMap(([title, files]) => {
    const own = findings.filter(({ file }) => files.includes(file));
    return own.length === 0 ? [] : [`## ${title}\n\n${table(merge(own))}`];
  });
  return `${introduction(run, findings)}\n\n${chapters.join('\n\n')}\n`;
}

function introduction({ date, version, machine, minutes }: Run, findings: readonly Finding[]): string {
  const tried = findings.reduce((sum, finding) => sum + finding.tried, 0);
  return `# Reliability

\`npm run faults -- --report\` writes this file: faults provoked on purpose, ${count(tried)} times, and what came of it. Each is a
test that fails when anything is lost or does not come back, and a run with a failure writes no report: so the column
*lost* says zero, and what is worth reading is how long recovery took, and how often it was tried.

*Lost* counts what had been answered, was up or was on the disk before the fault, and was gone after it: tunnels, names,
records of the gateway. *Recovery* is the time until the public gets an answer of the device's own again, for each tunnel
by itself, unless the fault's name says otherwise; it is counted from the end of the fault. The agent and the SDK are the
real ones, the agent mostly in a process of its own. Agent, gateway, clients and the network between them shared one
machine: the times say what these programs add, not what a mobile link or an SD card does. A power cut is simulated,
by killing the process and by taking away what was not synced; no device was unplugged.

Run on ${date} with version ${version}, for ${count(minutes)} minutes: ${machine.join('; ')}.`;
}

interface Row extends Omit<Finding, 'file' | 'note'> {
  notes: string[];
}

/** A fault that several tests, or several findings of one, tell of has one row. */
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
