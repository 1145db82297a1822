import { expect, it } from 'vitest';
import { type Check, ok, renderReport, runChecks } from '../../src/doctor/finding.ts';
import { tcpCheck } from '../../src/doctor/tcp.ts';
import { wantsColor } from '../../src/lib/terminal-text.ts';

const check = (title: string, run: Check['run']): Check => ({ name: title.toLowerCase(), title, run });

it('reports all checks in order, even when one hangs or fails', async () => {
  const findings = await runChecks(
    [
      check('Hangs', () => new Promise(() => {})),
      check('Breaks', async () => Promise.reject(new Error('EACCES'))),
      check('Works', async () => ok('fine')),
    ],
    [],
    0.002,
  );
  expect(findings.map(({ title, status, detail }) => `${title} ${status}: ${detail}`)).toEqual([
    'Hangs failed: check failed: this did not finish within 0.019 s',
    'Breaks failed: check failed: EACCES',
    'Works ok: fine',
  ]);
});

it('never shows a secret, even when an error quotes it', async () => {
  const [finding] = await runChecks(
    [
      check('A', async () => ({
        status: 'failed',
        detail: 'bad token hush-hush of ws://a/?authtoken=x',
        advice: 'not hush-hush',
      })),
    ],
    ['hush-hush', ''],
    1,
  );
  expect(finding).toMatchObject({ detail: 'bad token [masked] of ws://a/?authtoken=[masked]', advice: 'not [masked]' });
});

it('the report has columns, with the remedy below each problem', () => {
  const of = (title: string) => ({ check: 'x', title });
  const report = renderReport(
    [
      { ...of('Disk'), status: 'ok', detail: 'fine', advice: null },
      { ...of('Network'), status: 'failed', detail: 'down', advice: 'plug it in' },
      { ...of('Network'), status: 'failed', detail: 'slow', advice: null },
      { ...of('Clock'), status: 'skipped', detail: 'no idea', advice: null },
    ],
    false,
  );
  expect(report.split('\n')).toEqual([
    '✔ Disk     fine',
    '✖ Network  down',
    '           → plug it in',
    '✖          slow',
    '- Clock    no idea',
    '',
    '2 problems.',
  ]);
});

it('uses colours only in terminals that support them', () => {
  const finding = { check: 'x', title: 'X', status: 'ok', detail: 'fine', advice: null } as const;
  expect(renderReport([finding], true)).toContain('\u001b[32m✔\u001b[0m X');
  expect(wantsColor({ isTTY: true }, {})).toBe(true);
  expect(wantsColor({ isTTY: true }, { NO_COLOR: '1' })).toBe(false);
  expect(wantsColor({ isTTY: true }, { TERM: 'dumb' })).toBe(false);
  expect(wantsColor({}, {})).toBe(false);
});

it.each([
  ['cubic', [1_000_000, 20_000], /cubic; 1.96 % of packets/, /BBR .* then restart device-agent$/],
  ['cubic', [1_000_000, 1_000], /cubic; 0.10 % of packets/, null],
  ['cubic', [900, 90], /too little sent/, null],
  ['bbr', [1_000_000, 200_000], /bbr; 16.67 % of packets/, null],
])('with %s, of segments and those sent again %j, says what helps', async (control, [sent, again], detail, advice) => {
  const read = async (path: string) =>
    path.endsWith('snmp') ? `Ip: A B\nIp: 1 2\nTcp: OutSegs RetransSegs\nTcp: ${sent} ${again}\n` : `${control}\n`;
  const [finding] = await runChecks([tcpCheck('device-agent', read)], [], 1);
  expect(finding).toMatchObject({ status: 'ok', detail: expect.stringMatching(detail) });
  expect(finding?.advice ?? null).toEqual(advice === null ? null : expect.stringMatching(advice));
});

it('a system without these files is no problem', async () => {
  const [finding] = await runChecks([tcpCheck('device-agent', () => Promise.reject(new Error('ENOENT')))], [], 1);
  expect(finding?.status).toBe('skipped');
});
