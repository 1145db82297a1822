import { describe, expect, it } from 'vitest';
import type { MessageReport, RequestDetail } from '../../../src/agent/api/inspection/inspection-reports.ts';
import { curlCommand } from '../../../src/agent/api/inspection/shown-requests.ts';
import { columnTitles, requestLine, requestText } from '../../../src/commands/watch/request-detail.ts';
import { printable, printableLines } from '../../../src/lib/terminal-text.ts';

/** Clears the screen, changes the title, turns text around, and more that a terminal would carry out. */
const HOSTILE = '\u001b[2J\u001b]0;title\u0007\u009b31m\r\u0008\u202egnp\u200b\u2028';
const CONTROLS = /[\p{Cf}\p{Zl}]|(?![\n\t])\p{Cc}/u;

const BODY = {
  bytes: 3,
  captured_bytes: 3,
  truncated: false,
  content_type: 'text/plain',
  content_encoding: null,
  text: 'abc',
  base64: null,
  decoded_bytes: 3,
  error: null,
};

function detail(changes: Partial<RequestDetail> = {}): RequestDetail {
  return {
    id: '7',
    state: 'complete',
    kind: 'http',
    method: 'GET',
    path: '/a',
    host: 'cam.example',
    status: 200,
    client: '203.0.113.5',
    started_at: '2026-11-23T03:14:04.000Z',
    duration_ms: 12.34,
    request_bytes: 0,
    response_bytes: 1_234,
    content_type: null,
    messages: 0,
    replay_of: null,
    answered_by: null,
    captured: true,
    error: null,
    http_version: '1.1',
    request: { headers: [{ name: 'Host', value: 'cam.example' }], trailers: [], body: null },
    response: { http_version: '1.1', status_text: 'OK', headers: [], trailers: [], body: null },
    timing: { sending_ms: 0, waiting_ms: 10, receiving_ms: 2 },
    gateway: null,
    masked: false,
    replayable: true,
    ...changes,
  };
}

describe('text that others chose', () => {
  it('has no character that a terminal carries out', () => {
    expect(printable(HOSTILE)).toBe('\\x1b[2J\\x1b]0;title\\x07\\x9b31m\\r\\x08\\u{202e}gnp\\u{200b}\\u{2028}');
    expect(printableLines('a\r\n\tb\u001b[0m\rc')).toBe('a\n\tb\\x1b[0m\\x0dc');
    expect(printable('Grüße, 日本語 🙂')).toBe('Grüße, 日本語 🙂');
  });

  it('reaches the terminal escaped, from every part of a request', () => {
    const headers = [{ name: `X-${HOSTILE}`, value: HOSTILE }];
    const body = { ...BODY, text: HOSTILE, content_type: HOSTILE, error: HOSTILE };
    const binary = { ...body, text: null, base64: 'AA==' };
    const hostile = detail({
      method: HOSTILE,
      path: HOSTILE,
      client: HOSTILE,
      error: HOSTILE,
      request: { headers, trailers: headers, body },
      response: { http_version: '1.1', status_text: HOSTILE, headers, trailers: headers, body: binary },
    });
    const message: MessageReport = {
      number: 1,
      from: 'client',
      type: 'event',
      at: '2026-11-23T03:14:04.000Z',
      bytes: 1,
      truncated: false,
      text: HOSTILE,
      base64: null,
      event: HOSTILE,
      error: null,
    };
    const texts = [
      requestText(hostile, [
        message,
        { ...message, type: 'close', base64: Buffer.from(`\u0003\u00e8${HOSTILE}`).toString('base64'), text: null },
      ]),
      requestLine(hostile, { width: Number.POSITIVE_INFINITY, color: false }),
      curlCommand(hostile, 'https://cam.example'),
    ];
    for (const text of texts) expect(CONTROLS.test(text)).toBe(false);
  });
});

describe('a line', () => {
  it.each([
    [60, ['ID', 'METHOD', 'STATUS', 'TOOK', 'PATH']],
    [80, ['TIME', 'ID', 'METHOD', 'STATUS', 'TOOK', 'SIZE', 'PATH']],
    [120, ['TIME', 'ID', 'METHOD', 'STATUS', 'TOOK', 'SIZE', 'CLIENT', 'PATH']],
  ])('at %i columns has room for a path of 24, and gives a longer one a line of its own', (width, titles) => {
    expect(columnTitles(width).split(/ +/)).toEqual(titles);
    const line = (path: string) => requestLine(detail({ path }), { width, color: false }).split('\n');
    const path = `/${'x'.repeat(23)}`;
    expect(line(path)).toEqual([expect.stringMatching(new RegExp(`7 +GET +200 +12 ms.* ${path}$`))]);
    expect(line(path)[0]?.length).toBeLessThanOrEqual(width);
    const long = `/${'x'.repeat(200)}`;
    expect(line(long)).toEqual([expect.stringMatching(/7 +GET +200 +12 ms/), `  ${long}`]);
  });

  it.each([
    [
      { state: 'failed', status: null, error: 'upstream unreachable: x' },
      / failed .*\/a {2}\(upstream unreachable: x\)$/,
    ],
    [{ state: 'aborted', status: 200, error: 'early' }, / 200! .*\(early\)$/],
    [{ kind: 'websocket', messages: 1, state: 'open', status: 101 }, / 101 +- .*\(WebSocket, 1 message; open\)$/],
    [{ kind: 'events', messages: 2, replay_of: '3' }, /\(replay of 3; 2 events\)$/],
    [{ duration_ms: 1_234.5, response_bytes: 45_000_000 }, / 1\.23 s +45 MB /],
  ] as const)('shows %j', (changes, expected) => {
    expect(requestLine(detail(changes), { width: Number.POSITIVE_INFINITY, color: false })).toMatch(expected);
  });
});

it('the detail shows JSON with its structure, and what is missing', () => {
  const json = { ...BODY, content_type: 'application/json', text: '{"a":[1]}' };
  const cut = { ...BODY, text: null, base64: 'AAAA', content_type: 'image/png', truncated: true, bytes: 300_000 };
  const text = requestText(
    detail({
      method: 'POST',
      masked: true,
      request: { headers: [{ name: 'A', value: 'b' }], trailers: [], body: json },
      response: {
        http_version: '1.1',
        status_text: 'OK',
        headers: [],
        trailers: [{ name: 'T', value: 'u' }],
        body: cut,
      },
    }),
    [],
  );
  expect(text).toContain(
    'from 203.0.113.5, 12 ms (waited 10 ms), secrets masked, see --reveal\nPOST /a HTTP/1.1\nA: b\n\n{\n  "a": [\n',
  );
  expect(text).toContain('\nHTTP/1.1 200 OK\n\n# image/png, 300 kB\n# cut: 300 kB were sent\nT: u\n');
  expect(requestText(detail({ response: null, status: null, error: 'gone' }), [])).toContain('# gone\n# no response');
});
