import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RequestStep } from '../../../../src/traffic-policy/steps.ts';
import { type DirectEndpoint, TestEdge } from '../../../support/edge.ts';
import { ask } from '../../../support/http-request.ts';

let edge: TestEdge;
let names = 0;

beforeAll(async () => {
  edge = await TestEdge.start();
});
afterAll(() => edge.close());

/** An upstream that answers with the headers it got, behind a policy. */
function serve(policy: object): Promise<DirectEndpoint> {
  return edge.serve(
    `p${++names}.localhost`,
    (req, res) => {
      res.setHeader('X-Upstream', 'yes');
      res.end(JSON.stringify(req.headers));
    },
    { policy },
  );
}

const rule = (type: string, config?: object) => [{ expressions: [], actions: [{ type, config }] }];

describe('on requests', () => {
  it('can hide the client’s address from the upstream and change the host', async () => {
    const { host } = await serve({
      on_http_request: [
        ...rule('remove-headers', { headers: ['x-forwarded-for'] }),
        ...rule('add-headers', { headers: { host: 'inner' } }),
      ],
    });
    const seen = JSON.parse((await ask(edge.httpPort, host)).body);
    expect(seen.host).toBe('inner');
    expect(seen).not.toHaveProperty('x-forwarded-for');
  });

  it('denies with an empty response, without a stream or the response phase', async () => {
    const endpoint = await serve({
      on_http_request: rule('deny', { status_code: 418 }),
      on_http_response: rule('add-headers', { headers: { 'x-added': 'y' } }),
    });
    const answer = await ask(edge.httpPort, endpoint.host, { body: 'unread' });
    expect([answer.status, answer.body, answer.headers['x-added']]).toEqual([418, '', undefined]);
    expect(endpoint.streams).toEqual([]);
  });

  it('adds the cookies of actions to the response, whoever makes it, and shows them to no policy', async () => {
    const added = ['set-cookie', 'kept=1'];
    for (const body of ['upstream', 'policy']) {
      const endpoint = await serve({
        on_http_response: rule('add-headers', { headers: { 'x-seen': `\${'set-cookie' in res.headers}` } }),
      });
      const onHttpRequest: RequestStep = (request) => {
        request.responseCookies = added;
        const answer = { kind: 'answer', status: 200, headers: [], body: Buffer.from(body), refused: false } as const;
        return body === 'policy' ? answer : undefined;
      };
      Object.assign(endpoint, { policy: { ...endpoint.policy, onHttpRequest } });
      const { headers } = await ask(edge.httpPort, endpoint.host);
      expect([headers['set-cookie'], headers['x-seen']]).toEqual([['kept=1'], 'false']);
    }
  });

  it('answers itself, and runs the response phase on that answer', async () => {
    const { host } = await serve({
      on_http_request: rule('custom-response', { status_code: 503, body: '{"a":1}', headers: { 'retry-after': 9 } }),
      on_http_response: rule('add-headers', { headers: { 'x-added': 'y' } }),
    });
    for (let again = 0; again < 2; again++) {
      const answer = await ask(edge.httpPort, host);
      expect(answer).toMatchObject({ status: 503, body: '{"a":1}' });
      expect(answer.headers).toMatchObject({
        'content-type': 'application/json',
        'retry-after': '9',
        'x-added': 'y',
      });
      expect(answer.rawHeaders.filter((name) => name === 'content-length')).toHaveLength(1);
    }
  });

  it('rejects before the body is uploaded, and never reads a body as a request', async () => {
    const { host } = await serve({ on_http_request: rule('deny') });
    const smuggled = `GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`;
    const text = await edge.raw(
      `POST / HTTP/1.1\r\nHost: ${host}\r\nExpect: 100-continue\r\nContent-Length: ${smuggled.length}\r\n\r\n${smuggled}`,
    );
    expect(text).toMatch(/^HTTP\/1\.1 403 /);
    expect(text.match(/HTTP\/1\.1/g)).toHaveLength(1);
  });
});

describe('on responses', () => {
  it('replaces a response that is still arriving', async () => {
    const { host } = await edge.serve(`p${++names}.localhost`, (_req, res) => void res.write('never ends'), {
      policy: { on_http_response: rule('custom-response', { status_code: 204 }) },
    });
    const answer = await ask(edge.httpPort, host);
    expect([answer.status, answer.body]).toEqual([204, '']);
  });
});
