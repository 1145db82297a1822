import { execFileSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import type { RequestDetail } from '../../../../src/agent/api/inspection/inspection-reports.ts';
import { curlCommand } from '../../../../src/agent/api/inspection/shown-requests.ts';

const URL = 'https://cam.example.com/';
/** What keeps curl from calling a body a form. */
const NO_TYPE = ['-H', 'Content-Type:'];

function detail(changes: Partial<RequestDetail>, request: Partial<RequestDetail['request']> = {}): RequestDetail {
  const parts = { method: 'GET', path: '/', ...changes };
  return { ...parts, request: { headers: [], trailers: [], body: null, ...request } } as RequestDetail;
}

function bodyOf(members: Partial<NonNullable<RequestDetail['request']['body']>>): RequestDetail['request']['body'] {
  return { text: null, base64: null, truncated: false, error: null, ...members } as RequestDetail['request']['body'];
}

/** What curl gets of a command that a shell runs: its arguments, and its standard input. */
function run(command: string, shell: string): { args: string[]; input: string } {
  const script = `curl() { printf '%s\\0' "$@"; printf '\\0'; [ "$piped" ] && cat; return 0; }; ${command}`;
  const output = execFileSync(shell, ['-c', script], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { PATH: process.env.PATH, ...(command.startsWith('printf') && { piped: '1' }) },
  });
  const end = output.indexOf('\0\0');
  return { args: output.slice(0, end).split('\0'), input: output.slice(end + 2) };
}

describe('a captured request as a curl command', () => {
  it('has its method, headers and body, without what belongs to its connection', () => {
    const headers = [
      { name: 'Host', value: 'cam.example.com' },
      { name: ':authority', value: 'cam.example.com' },
      { name: 'Content-Type', value: 'application/json' },
      { name: 'Content-Length', value: '7' },
      { name: 'Accept-Encoding', value: 'gzip' },
      { name: 'X-Empty', value: '' },
    ];
    const made = detail({ method: 'PUT', path: '/../a?b=[1-3]' }, { headers, body: bodyOf({ text: '{"a":1}' }) });
    expect(run(curlCommand(made, URL), 'sh').args).toEqual([
      ...['-g', '--path-as-is', '-X', 'PUT', 'https://cam.example.com/../a?b=[1-3]'],
      ...['-H', 'Content-Type: application/json', '-H', 'X-Empty;', '--compressed', '--data-raw', '{"a":1}'],
    ]);
    // curl refuses -I together with a body.
    for (const body of [null, bodyOf({ text: 'a' })]) {
      expect(curlCommand(detail({ method: 'HEAD' }, { body }), URL)).toBe('curl -I https://cam.example.com/');
      const withCa = curlCommand(detail({ method: 'HEAD' }, { body }), URL, '/home/jo/my data/ca.pem');
      expect(withCa).toBe("curl --cacert '/home/jo/my data/ca.pem' -I https://cam.example.com/");
    }
  });

  it('has no type of a body that the request had none of', () => {
    const made = detail({ method: 'POST' }, { body: bodyOf({ text: 'a=1&b' }) });
    expect(run(curlCommand(made, URL), 'sh').args).toEqual([
      ...['https://cam.example.com/', ...NO_TYPE, '--data-raw', 'a=1&b'],
    ]);
  });

  it.each(
    [
      "'; touch /tmp/x; '",
      '$(id)',
      '`id`',
      '\\',
      '!!',
      '"',
      '&; | > !x',
      '-',
      "it's\nover\ttwo lines",
      '@/etc/passwd',
    ].flatMap((text) => ['sh', 'bash'].map((shell) => [shell, text] as const)),
  )('is text to %s with %j in path, header and body', (shell, hostile) => {
    const headers = [{ name: 'X-Hostile', value: hostile }];
    const made = detail({ method: 'POST', path: `/${hostile}` }, { headers, body: bodyOf({ text: hostile }) });
    expect(run(curlCommand(made, URL), shell).args).toEqual([
      `https://cam.example.com/${hostile}`,
      ...['-H', `X-Hostile: ${hostile}`, ...NO_TYPE, '--data-raw', hostile],
    ]);
  });

  it('shows a terminal nothing that it would carry out, and sends it all the same', () => {
    const hostile = '\u001b]0;title\u0007\r\u202erm -rf ~ü1f';
    const headers = [{ name: 'X-A', value: hostile }];
    const made = detail({ method: 'POST' }, { headers, body: bodyOf({ text: `\0${hostile}` }) });
    const command = curlCommand(made, URL);
    expect(command).toMatch(/^[\x20-\x7eü]+$/);
    const { args, input } = run(command, 'bash');
    expect(args).toEqual(['https://cam.example.com/', '-H', `X-A: ${hostile}`, ...NO_TYPE, '--data-binary', '@-']);
    expect(input).toBe(`\0${hostile}`);
  });

  it.each([
    ['decoded', { text: 'abc' }, '-H Content-Type: --data-raw abc'],
    [
      'sent as it was captured when it could not be decoded',
      { text: 'abc', error: 'invalid gzip' },
      "-H 'Content-Encoding: gzip' -H Content-Type: --data-raw abc",
    ],
    ['left out when it was not captured whole', { text: 'abc', truncated: true }, ''],
  ])('a compressed body is %s', (_, body, expected) => {
    const headers = [{ name: 'Content-Encoding', value: 'gzip' }];
    const command = curlCommand(detail({ method: 'PUT' }, { headers, body: bodyOf(body) }), URL);
    expect(command).toBe(['curl -X PUT https://cam.example.com/', expected].join(' ').trimEnd());
  });

  it('a binary body comes from base64', () => {
    const command = curlCommand(detail({ method: 'POST' }, { body: bodyOf({ base64: 'AAE=' }) }), URL);
    expect(command).toBe(
      'printf %s AAE= | base64 -d | curl https://cam.example.com/ -H Content-Type: --data-binary @-',
    );
  });
});
