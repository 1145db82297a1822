import { afterEach, beforeEach, expect, it } from 'vitest';
import { compilePolicy } from '../../../../src/traffic-policy/engine.ts';
import { TestEdge } from '../../../support/edge.ts';
import { ask } from '../../../support/http-request.ts';

const HOST = 'turns.localhost';
const BODY = 'a'.repeat(300_000);

let edge: TestEdge;
beforeEach(async () => {
  edge = await TestEdge.start();
});
afterEach(() => edge.close());

it.each(['/whole', '/failed'])(
  'a response phase whose authtoken had its turn runs in a later one (%s)',
  async (path) => {
    const endpoint = await edge.serve(HOST, (req, res) => {
      res.writeHead(200, { 'content-length': BODY.length });
      if (req.url === '/whole') res.end(BODY);
      else res.write(BODY.slice(1), () => res.destroy());
    });
    const headers = { 'x-checked': 'yes' };
    const rules = [
      { expressions: ['res.status_code == 200'], actions: [{ type: 'add-headers', config: { headers } }] },
    ];
    const policy = compilePolicy(JSON.stringify({ on_http_response: rules }), 'http');
    let busyTurns = 20;
    const ranWhileBusy: boolean[] = [];
    Object.assign(endpoint, {
      policy: {
        ...policy,
        shouldYield: () => busyTurns-- > 0,
        onHttpResponse: (...args: Parameters<NonNullable<typeof policy.onHttpResponse>>) => {
          ranWhileBusy.push(busyTurns > 0);
          return policy.onHttpResponse?.(...args);
        },
      },
    });
    for (let times = 0; times < 3; times++) {
      busyTurns = 20;
      const { status, body, headers: received, complete } = await ask(edge.httpPort, HOST, { path });
      const isWhole = path === '/whole';
      expect([status, received['x-checked'], complete]).toEqual([200, 'yes', isWhole]);
      expect(body.length).toBe(isWhole ? BODY.length : BODY.length - 1);
    }
    expect(ranWhileBusy).toEqual([false, false, false]);
  },
);
