import fc from 'fast-check';
import { expect, it } from 'vitest';
import { CaptureStore } from '../../../src/agent/inspector/capture-store.ts';
import { GatewayReports } from '../../../src/agent/inspector/gateway-reports.ts';
import { headDigest, headSample, type RequestReport } from '../../../src/agent-protocol/request-report.ts';
import { captured, setUpCapture, TUNNEL } from './captured.ts';

const RESPONSE = 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n';
const headOf = (path: string) => `GET ${path} HTTP/1.1\r\nHost: cam\r\nX: \xfc`;

function report(changes: Partial<RequestReport> = {}): RequestReport {
  return {
    at: 0,
    ms: 1,
    method: 'GET',
    host: 'cam',
    target: '/',
    client: '203.0.113.7:1000',
    status: 200,
    code: null,
    sent: null,
    by: 'upstream',
    rules: [],
    ...changes,
  };
}

const sent = (path: string) => ({ target: path, head: headDigest(headOf(path)), sample: headSample(headOf(path)) });

/** Requests with these paths, captured and answered, that may be reported. */
function setUp(...paths: string[]) {
  const store = new CaptureStore();
  const reports = new GatewayReports(store);
  for (const path of paths) reports.captured(captured(`${headOf(path)}\r\n\r\n`, RESPONSE, store));
  return {
    store,
    reports,
    take: (changes: Partial<RequestReport>, tunnel = TUNNEL) => reports.take(tunnel, JSON.stringify(report(changes))),
    /** Oldest first: path, the client if it is known, and whether it was captured. */
    list: () =>
      [...store.listOldestFirst(TUNNEL)].map(({ request, report, isOnlyReported }) =>
        [request.line.target, report?.client.split(':')[1] ?? '-', ...(isOnlyReported ? ['only'] : [])].join(' '),
      ),
  };
}

it('a report is joined with the request whose head it names, and identical ones in order', () => {
  const { take, list } = setUp('/a', '/b', '/a');
  take({ sent: sent('/b'), client: 'b:1' });
  take({ sent: sent('/a'), client: 'a:2' });
  take({ sent: sent('/a'), client: 'a:3' });
  take({ sent: sent('/a'), client: 'a:4' });
  expect(list()).toEqual(['/a 2', '/b 1', '/a 3']);
});

it('a report goes to the attempt that the upstream has answered, not to the one before that the gateway repeated', () => {
  const { reports, store, take, list } = setUp();
  const first = setUpCapture(store);
  first.client(`${headOf('/a')}\r\n\r\n`);
  first.capture.closed(true, 'upstream');
  for (const exchange of first.exchanges()) reports.captured(exchange);
  reports.captured(captured(`${headOf('/a')}\r\n\r\n`, RESPONSE, store));
  take({ sent: sent('/a'), client: 'a:2' });
  expect(list()).toEqual(['/a -', '/a 2']);
  expect(first.exchanges()[0]?.error).toBe('the upstream closed the connection before there was a response');
});

it('a report of another tunnel is not joined', () => {
  const { take, list } = setUp('/a');
  take({ sent: sent('/a') }, 'other');
  expect(list()).toEqual(['/a -']);
});

it('requests that were not captured are added if the upstream did not answer them', () => {
  const { take, list } = setUp();
  take({ sent: sent('/x'), target: '/x' });
  take({ by: 'nobody', status: null, target: '/left' });
  take({ by: 'gateway', status: 403, target: '/denied' });
  take({ by: 'gateway', status: 502, code: 'ERR_NGROK_3004', sent: sent('/away'), target: '/away' });
  take({ by: 'endpoint', target: '/inside' });
  expect(list()).toEqual(['/denied 1000 only', '/away 1000 only', '/inside 1000 only']);
});

it('a request that the gateway answered has its status, and one whose connection it closed an error', () => {
  const { store, take } = setUp();
  take({ by: 'gateway', status: 403 });
  take({ by: 'gateway', status: null });
  expect([...store.listOldestFirst(TUNNEL)]).toMatchObject([
    { state: 'complete', status: 403, error: null, response: null },
    { state: 'aborted', status: null, error: 'the gateway closed the connection', response: null },
  ]);
});

it('reports count among the captured bytes, and are forgotten with their requests', () => {
  const { store, reports, take } = setUp('/a');
  const before = store.held;
  take({ sent: sent('/a'), client: `${'a'.repeat(200)}:1` });
  take({ by: 'gateway', status: 403 });
  expect(store.held).toBeGreaterThan(before + 1_000);
  store.clear(TUNNEL);
  expect(store.held).toBe(0);
  take({ sent: sent('/a') });
  expect([store.held, reports.missed(TUNNEL)]).toEqual([0, 0]);
});

it('a flood of reports keeps within the limit, the newest stay', () => {
  const store = new CaptureStore(100_000);
  const reports = new GatewayReports(store);
  for (let at = 0; at < 2_000; at++) {
    reports.take(TUNNEL, JSON.stringify(report({ by: 'gateway', target: `/${at}${'a'.repeat(3_000)}` })));
  }
  expect(store.held).toBeLessThanOrEqual(100_000);
  const [newest] = store.list(TUNNEL);
  expect(newest?.request.line.target).toMatch(/^\/1999a/);
});

it('what the gateway left out is counted', () => {
  const { reports } = setUp();
  for (const dropped of [3, 4]) reports.take(TUNNEL, JSON.stringify({ dropped }));
  expect([reports.missed(TUNNEL), reports.missed('other')]).toEqual([7, 0]);
  reports.forget(TUNNEL);
  expect(reports.missed(TUNNEL)).toBe(0);
});

it('lines that are no reports are ignored', () => {
  const { store, reports } = setUp();
  const lines = fc.oneof(
    fc.string(),
    fc.json(),
    fc.record({ dropped: fc.anything() }).map((value) => JSON.stringify(value) ?? ''),
    fc
      .tuple(fc.constantFrom(...Object.keys(report())), fc.oneof(fc.object(), fc.constant([1])))
      .map(([key, value]) => JSON.stringify({ ...report({ by: 'gateway' }), [key]: value })),
    fc.constantFrom('/a'.repeat(5_000)).map((target) => JSON.stringify(report({ by: 'gateway', target }))),
  );
  fc.assert(fc.property(lines, (line) => reports.take(TUNNEL, line)));
  expect(store.countOf(TUNNEL)).toBe(0);
});

it('a response that the gateway has refused is shown with what was wrong, not as it was captured', () => {
  const { store, take } = setUp('/a', '/b');
  take({ sent: sent('/a'), by: 'gateway', status: 502, code: 'ERR_NGROK_3004', problem: 'it is odd' });
  const shown = [...store.listOldestFirst(TUNNEL)].map(({ state, status, error }) => [state, status, error]);
  expect(shown).toEqual([
    ['failed', 502, 'the upstream sent an invalid HTTP response: it is odd'],
    ['complete', 200, null],
  ]);
});
