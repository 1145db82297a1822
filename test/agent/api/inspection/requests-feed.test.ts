import { once } from 'node:events';
import { createServer, type IncomingMessage, request } from 'node:http';
import { describe, expect, it } from 'vitest';
import type { RequestsChange, RequestsSnapshot } from '../../../../src/agent/api/inspection/inspection-reports.ts';
import { setUpApi } from '../../../support/api-set-up.ts';
import { serving } from '../../../support/loopback.ts';

interface Sent {
  snapshot: RequestsSnapshot;
  next: () => Promise<RequestsChange>;
}

/** A tunnel `cam` that is inspected, on a real server. */
async function setUp() {
  const { local, tunnels, inspector } = await setUpApi();
  const port = await serving(createServer(local));
  const call = (method: string, path: string, body?: object) =>
    fetch(`http://127.0.0.1:${port}${path}`, {
      method,
      ...(body && { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
    });
  await call('POST', '/tunnels', { forwards_to: '8001', domain: 'cam.localhost' });
  await call('PUT', '/tunnels/cam/inspection', {});
  const { id } = tunnels.find('cam').tunnel;
  const exchange = (path: string) => {
    const capture = inspector.capture(id);
    capture.fromClient(Buffer.from(`GET ${path} HTTP/1.1\r\n\r\n`));
    return () => capture.toClient(Buffer.from('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'));
  };
  const open = async (query = ''): Promise<Sent> => {
    const asked = request({ port, path: `/tunnels/cam/requests/events${query}`, agent: false }).end();
    const [response] = (await once(asked, 'response')) as [IncomingMessage];
    const events = eventsIn(response);
    const snapshot = (await events.next()).value?.data as RequestsSnapshot;
    const next = async () => {
      for (;;) {
        const { value } = await events.next();
        if (value?.name === 'change') return value.data as RequestsChange;
      }
    };
    return { snapshot, next };
  };
  return { call, exchange, open, port, inspector };
}

describe('the live feed of requests', () => {
  it('begins with what is captured, followed by what changes', async () => {
    const { exchange, open } = await setUp();
    exchange('/before')();
    const { snapshot, next } = await open();
    expect(snapshot).toMatchObject({
      inspection: { state: 'on', requests: 1 },
      requests: [{ path: '/before', state: 'complete' }],
    });
    const answer = exchange('/next?token=abc');
    expect(await next()).toMatchObject({ requests: [{ path: '/next?token=[masked]', state: 'open', status: null }] });
    answer();
    expect(await next()).toMatchObject({ requests: [{ state: 'complete', status: 200, response_bytes: 2 }] });
  });

  it('reports the end of the inspection, and requests that are forgotten', async () => {
    const { call, exchange, open } = await setUp();
    exchange('/a')();
    const { next } = await open('?reveal=true');
    await call('DELETE', '/tunnels/cam/inspection');
    expect(await next()).toEqual({ inspection: expect.objectContaining({ state: 'off', until: null }) });
    await call('DELETE', '/tunnels/cam/requests');
    expect(await next()).toMatchObject({ removed: ['1'], inspection: { requests: 0 } });
  });

  it('sends no more at once than people can read', async () => {
    const { exchange, open } = await setUp();
    const { next } = await open();
    for (let count = 0; count < 250; count++) exchange(`/${count}`)();
    const { requests, skipped } = await next();
    expect([requests?.length, requests?.[0]?.path, skipped]).toEqual([200, '/249', 50]);
  });

  it('has a limit of streams', async () => {
    const { open, port } = await setUp();
    for (let count = 0; count < 32; count++) await open();
    const refused = await fetch(`http://127.0.0.1:${port}/tunnels/cam/requests/events`);
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '5']);
  });
});

async function* eventsIn(response: IncomingMessage): AsyncGenerator<{ name: string; data: object }> {
  let rest = '';
  for await (const piece of response.setEncoding('utf8')) {
    const events = (rest + piece).split('\n\n');
    rest = events.pop() ?? '';
    for (const event of events) {
      const [, name = '', data = '{}'] = /^event: (.*)\ndata: (.*)$/.exec(event) ?? [];
      yield { name, data: JSON.parse(data) };
    }
  }
}
