import type { Finding, FindingStatus } from './finding.ts';

const MARKS: Readonly<Record<FindingStatus, string>> = { ok: '✔', failed: '✖', skipped: '-' };
const COLORS: Readonly<Record<FindingStatus, number>> = { ok: 32, failed: 31, skipped: 90 };

/** Whether to use colours: on a terminal, unless NO_COLOR is set (no-color.org). */
export function wantsColor(stream: { isTTY?: boolean }, env: NodeJS.ProcessEnv): boolean {
  return stream.isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb';
}

/** Renders the findings for people: one line each, with the advice below each problem. */
export function renderReport(findings: readonly Finding[], color: boolean): string {
  const width = Math.max(0, ...findings.map(({ title }) => title.length));
  const paint = (text: string, code: number) => (color ? `\u001b[${code}m${text}\u001b[0m` : text);
  const lines = findings.flatMap(({ status, title, detail, advice }, at) => {
    const repeated = findings[at - 1]?.title === title;
    const head = `${paint(MARKS[status], COLORS[status])} ${(repeated ? '' : title).padEnd(width)}  `;
    const shown = status === 'skipped' ? paint(detail, COLORS.skipped) : detail;
    return [head + shown, ...(advice === null ? [] : [`${' '.repeat(width + 4)}→ ${advice}`])];
  });
  const wrong = findings.filter(({ status }) => status === 'failed').length;
  const verdict =
    wrong === 0
      ? paint('No problems found.', COLORS.ok)
      : paint(`${wrong} ${wrong === 1 ? 'problem' : 'problems'}.`, COLORS.failed);
  return [...lines, '', verdict].join('\n');
}
