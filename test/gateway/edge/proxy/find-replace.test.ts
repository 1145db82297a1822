import { once } from 'node:events';
import { type IncomingMessage, type RequestListener, request, type ServerResponse } from 'node:http';
import { createServer } from 'node:http2';
import { gunzipSync, gzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { bodyMemory } from '../../../../src/gateway/edge/proxy/request-body.ts';
import { systemClock } from '../../../../src/lib/time/clock.ts';
import { PACKAGED_REPLACER } from '../../../../src/packaged.ts';
import { compilePolicy } from '../../../../src/traffic-policy/engine.ts';
import type { PolicyPorts } from '../../../../src/traffic-policy/ports.ts';
import { ReplacementThreads } from '../../../../src/traffic-policy/replacement-threads.ts';
import { ProcessorTime } from '../../../../src/traffic-policy/state/processor-time.ts';
import {
  contentOf,
  type ReplacedText,
  replaceAll,
  type SearchedBody,
  type TextReplacement,
} from '../../../../src/traffic-policy/text-replacements.ts';
import { collect, TestEdge } from '../../../support/edge.ts';
import { type Ask, ask, askRaw } from '../../../support/http-request.ts';
import { answerOn, openHttp2 } from '../../../support/http2-client.ts';
import { until } from '../../../support/until.ts';
import { rule } from './policy-scene.ts';

const HOST = 'replaced.localhost';

let edge: TestEdge;
beforeEach(async () => {
  edge = await TestEdge.start();
});
afterEach(() => edge.close());

const asked = (options: Ask = {}) => ask(edge.httpPort, HOST, options);

const replacing = (from: string, to?: string) => ({ replacements: [{ from, to }] });
const SECRET = replacing('"key":\\s*"[^"]*"', '"key": "gone"');
const onRequest = (...rules: object[]) => ({ policy: { on_http_request: rules } });
const onResponse = (...rules: object[]) => ({ policy: { on_http_response: rules } });
const onMessage = (...rules: object[]) => ({ policy: { on_event_stream_message: rules } });

const GZIP = { 'content-encoding': 'gzip' };

const echo: RequestListener = async (req, res) => void res.end(await collect(req));

describe('request-body-find-replace', () => {
  it('changes what the upstream gets, with its length', async () => {
    await edge.serve(
      HOST,
      async (req, res) => {
        const { 'content-length': length, 'transfer-encoding': coding } = req.headers;
        res.end(`${length} ${coding} ${await collect(req)}`);
      },
      onRequest(rule('request-body-find-replace', replacing('(\\d+)-(\\w)', `$2\${req.method}é`))),
    );
    expect((await asked({ body: 'a 12-b 3-c' })).body).toBe('17 undefined a bPOSTé cPOSTé');
    const chunked = { 'transfer-encoding': 'chunked' };
    expect((await asked({ body: '1-x', headers: chunked })).body).toBe('undefined chunked xPOSTé');
    expect((await asked({ body: 'none' })).body).toBe('4 undefined none');
    expect((await asked()).body).toBe('undefined undefined ');
  });

  it('reads compressed bodies, and refuses those that are too long or cannot be read', async () => {
    const policy = onRequest(rule('request-body-find-replace', replacing('secret', 'public')));
    await edge.serve(
      HOST,
      async (req, res) => void res.end(`${req.headers['content-encoding']} ${await collect(req)}`),
      policy,
    );
    const body = gzipSync('a secret');
    expect((await asked({ body, headers: { 'content-encoding': 'gzip' } })).body).toBe('undefined a public');
    const tooLong = 'x'.repeat(1024 * 1024 + 1);
    expect((await asked({ body: tooLong })).status).toBe(413);
    const bomb = { body: gzipSync(tooLong), headers: { 'content-encoding': 'gzip' } };
    const unknown = { body: 'secret', headers: { 'content-encoding': 'zstd' } };
    const broken = { body: 'secret', headers: { 'content-encoding': 'br' } };
    for (const each of [bomb, unknown, broken]) {
      const { status, headers } = await asked(each);
      expect([status, headers['ngrok-error-code']]).toEqual([500, 'ERR_NGROK_2300']);
    }
  });

  it('gives no body to a request without one, which could be taken for the next request', async () => {
    const seen: string[] = [];
    await edge.serve(
      HOST,
      async (req, res) => {
        seen.push(`${req.method} ${req.headers['content-length']} ${await collect(req)}`);
        res.end();
      },
      onRequest(rule('request-body-find-replace', replacing('.*', 'GET /smuggled HTTP/1.1'))),
    );
    for (const headers of [{ 'content-length': '0' }, { 'transfer-encoding': 'chunked' }]) {
      expect((await asked({ method: 'POST', headers })).status).toBe(200);
    }
    expect((await asked()).status).toBe(200);
    expect(seen).toEqual(['POST 0 ', 'POST undefined ', 'GET undefined ']);
  });

  it('can remove a whole body', async () => {
    const policy = {
      on_http_request: [rule('request-body-find-replace', replacing('(?s).*'))],
      on_http_response: [rule('response-body-find-replace', replacing('(?s).*'))],
    };
    await edge.serve(
      HOST,
      async (req, res) => void res.end(`${req.headers['content-length']} ${(await collect(req)).length}`),
      { policy },
    );
    const { body, headers, complete } = await asked({ body: 'all' });
    expect([body, headers['content-length'], complete]).toEqual(['', '0', true]);
  });

  it('leaves bytes that are no text as they are', async () => {
    await edge.serve(HOST, echo, onRequest(rule('request-body-find-replace', replacing('B', 'ü'))));
    const bytes = Buffer.from([0xff, 0x42, 0xfe]);
    const { body } = await askRaw(edge.httpPort, HOST, { body: bytes });
    expect(body).toEqual(Buffer.from([0xff, 0xc3, 0xbc, 0xfe]));
  });

  it('lets later rules read what has matched', async () => {
    const policy = onRequest(
      rule('request-body-find-replace', { replacements: [{ from: 'x' }, { from: 'b+', to: 'c' }] }),
      rule('custom-response', { body: `\${json.encode(actions.ngrok.request_body_find_replace.replacements)}` }),
    );
    await edge.serve(HOST, echo, policy);
    expect((await asked({ body: 'abb b' })).body).toBe('[{"replacement_index":1,"matched_content":"bb"}]');
  });
});

describe('response-body-find-replace', () => {
  const JSON_TEXT = '{"key": "k-1", "name": "a"}';
  const HIDDEN = '{"key": "gone", "name": "a"}';

  it('changes what clients of HTTP/1.1 and HTTP/2 get, with its length', async () => {
    const headers = { etag: '"1"', 'content-length': JSON_TEXT.length };
    const policy = onResponse(rule('response-body-find-replace', SECRET));
    const answer: RequestListener = (_, res) => void res.writeHead(200, headers).end(JSON_TEXT);
    await edge.serve(HOST, answer, policy);
    const whole = await asked();
    expect([whole.body, whole.headers['content-length'], whole.headers.etag]).toEqual([HIDDEN, '28', 'W/"1"']);
    expect((await asked({ method: 'HEAD' })).headers).not.toHaveProperty('content-length');
    const host = 'secure.localhost';
    await edge.serve(host, answer, { ...policy, protocol: 'https' });
    const session = await openHttp2(edge, host);
    const { body, headers: received } = await answerOn(session.request({ ':path': '/', ':authority': host }));
    session.destroy();
    expect([body, received['content-length']]).toEqual([HIDDEN, '28']);
  });

  it('reads compressed responses, before and after compress-response', async () => {
    const answer: RequestListener = (req, res) => {
      if (req.url === '/plain') return void res.end(JSON_TEXT);
      return void res.writeHead(200, { 'content-encoding': 'gzip' }).end(gzipSync(JSON_TEXT));
    };
    const [replace, compress] = [rule('response-body-find-replace', SECRET), rule('compress-response')];
    const headers = { 'accept-encoding': 'gzip' };
    for (const rules of [[replace], [replace, compress], [compress, replace]]) {
      const endpoint = await edge.serve(HOST, answer, onResponse(...rules));
      for (const path of ['/plain', '/gzip']) {
        const { body, headers: received } = await askRaw(edge.httpPort, HOST, { path, headers });
        const text = received['content-encoding'] === 'gzip' ? gunzipSync(body) : body;
        expect(String(text)).toBe(HIDDEN);
      }
      edge.remove(endpoint);
    }
  });

  it('passes on a body without a match, and what follows it', async () => {
    const text = 'x'.repeat(200_000);
    await edge.serve(
      HOST,
      (_, res) => {
        res.writeHead(200, { trailer: 'x-sum' }).write(text);
        res.addTrailers({ 'x-sum': '1' });
        res.end('y');
      },
      onResponse(rule('response-body-find-replace', SECRET)),
    );
    const { body, trailers, complete } = await asked({ headers: { te: 'trailers' } });
    expect([body === `${text}y`, trailers['x-sum'], complete]).toEqual([true, '1', true]);
  });

  it.each<[string, (res: ServerResponse) => void]>([
    ['is too long', (res) => res.end('x'.repeat(1024 * 1024 + 1))],
    ['is incomplete', (res) => res.writeHead(200, { 'content-length': 10 }).write('x', () => res.destroy())],
    ['is partial', (res) => res.writeHead(206, { 'content-range': 'bytes 0-0/2' }).end('x')],
    ['never ends', (res) => res.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: 1\n\n')],
    ['has an unknown encoding', (res) => res.writeHead(200, { 'content-encoding': 'zstd' }).end('x')],
  ])('answers 500 when the body %s', async (_, answer) => {
    const rules = onResponse(rule('response-body-find-replace', SECRET));
    const endpoint = await edge.serve(HOST, (_req, res) => answer(res), rules);
    const runs: number[] = [];
    const { policy } = endpoint;
    const onHttpResponse: typeof policy.onHttpResponse = (request, response) => {
      runs.push(response.status);
      return policy.onHttpResponse?.(request, response);
    };
    Object.assign(endpoint, { policy: { ...policy, onHttpResponse } });
    const { status, headers, body } = await asked();
    expect([status, headers['ngrok-error-code']]).toEqual([500, 'ERR_NGROK_2300']);
    expect(body).not.toContain('xx');
    expect(runs).toHaveLength(1);
  });

  it('leaves responses without a body alone, and changes those of custom-response', async () => {
    const answer = rule('custom-response', { body: JSON_TEXT }, "req.url.path == '/own'");
    const policy = {
      on_http_request: [answer],
      on_http_response: [
        rule('response-body-find-replace', SECRET),
        rule('add-headers', {
          headers: { 'x-found': `\${size(actions.ngrok.response_body_find_replace.replacements)}` },
        }),
      ],
    };
    await edge.serve(HOST, (_, res) => void res.writeHead(304).end(), { policy });
    const [own, unchanged] = [await asked({ path: '/own' }), await asked()];
    expect([own.body, own.headers['x-found']]).toEqual([HIDDEN, '1']);
    expect([unchanged.status, unchanged.headers['x-found']]).toEqual([304, '0']);
  });

  it('searches long bodies, also compressed ones, in a thread, which ends when it takes too long', async () => {
    const time = new ProcessorTime(1, systemClock);
    const page = `${'ab'.repeat(250_000)}secret`;
    const endpoint = await edge.serve(HOST, (_, res) => void res.writeHead(200, GZIP).end(gzipSync(page)));
    const search = (from: string, threads: ReplacementThreads) => {
      const { policy } = onResponse(rule('response-body-find-replace', replacing(from, 'gone')));
      const ports: Partial<PolicyPorts> = {
        processorTime: time,
        replaceIn: (text, all) => threads.replace(text, all, time),
      };
      Object.assign(endpoint, { policy: compilePolicy(JSON.stringify(policy), 'http', { ports }) });
      return asked();
    };
    const slow = await search('secret|(a?){50}a{50}b', new ReplacementThreads(PACKAGED_REPLACER, 500));
    expect([slow.status, slow.headers['ngrok-error-code']]).toEqual([500, 'ERR_NGROK_2300']);
    const { body } = await search('secret', new ReplacementThreads(PACKAGED_REPLACER));
    expect(body.slice(-6)).toBe('abgone');
  });

  it('aborts nothing of another exchange when the policy answers instead', async () => {
    const policy = onResponse(
      rule('response-body-find-replace', SECRET),
      rule('custom-response', { body: 'instead' }, "req.url.path == '/instead'"),
    );
    const endpoint = await edge.serve(HOST, (_, res) => void res.end(JSON_TEXT), policy);
    const paths = Array.from({ length: 20 }, (_, at) => (at % 2 === 0 ? '/instead' : '/'));
    const bodies = await Promise.all(paths.map(async (path) => (await asked({ path })).body));
    expect(bodies).toEqual(paths.map((path) => (path === '/' ? HIDDEN : 'instead')));
    expect(endpoint.traffic.errors).toBe(0);
  });
});

describe('what waits to be searched', () => {
  const memory = bodyMemory('127.0.0.1');
  const zipped = gzipSync(Buffer.alloc(1_000_000, 'x'));

  /** An endpoint whose policy searches when the test says so. */
  async function searching(handler: RequestListener, policy: object) {
    const waiting: (() => void)[] = [];
    const replaceIn = (text: string | SearchedBody, all: readonly TextReplacement[]) =>
      new Promise<ReplacedText>((resolve) => {
        const time = new ProcessorTime(1, systemClock);
        waiting.push(() => resolve(contentOf(text, time).then((content) => replaceAll(content, all))));
      });
    const endpoint = await edge.serve(HOST, handler);
    Object.assign(endpoint, { policy: compilePolicy(JSON.stringify(policy), 'http', { ports: { replaceIn } }) });
    return waiting;
  }

  const requests = onRequest(rule('request-body-find-replace', replacing('y', 'z'))).policy;
  const responses = onResponse(rule('response-body-find-replace', replacing('y', 'z'))).policy;
  const zippedPage: RequestListener = (_, res) => void res.writeHead(200, GZIP).end(zipped);

  it.each<[string, RequestListener, object, Ask]>([
    ['requests', echo, requests, { body: zipped, headers: GZIP }],
    ['responses', zippedPage, responses, {}],
  ])('holds compressed bodies of %s as they came until they are searched', async (_, handler, policy, options) => {
    const waiting = await searching(handler, policy);
    const answers = [asked(options), asked(options)];
    await until(() => waiting.length === 2, 'two bodies that wait');
    expect(memory.reserved).toBeLessThan(20_000);
    for (const search of waiting) search();
    for (const { body } of await Promise.all(answers)) expect(body.length).toBeGreaterThan(0);
    await until(() => memory.reserved === 0, 'the release of what was counted');
  });

  it('counts a changed response until the client has it', async () => {
    const rules = [
      rule('response-body-find-replace', replacing('x', 'yy')),
      rule('response-body-find-replace', replacing('none', '')),
    ];
    const waiting = await searching((_, res) => void res.end('x'.repeat(500_000)), onResponse(...rules).policy);
    const answer = asked();
    await until(() => waiting.length === 1, 'the first search');
    waiting[0]?.();
    await until(() => waiting.length === 2, 'the second search');
    expect(memory.reserved).toBeGreaterThan(1_500_000);
    waiting[1]?.();
    expect((await answer).body.length).toBe(1_000_000);
    await until(() => memory.reserved === 0, 'the release of what was counted');
  });

  it('counts responses in small pieces by the memory that they take', async () => {
    const waiting = await searching((_, res) => {
      res.write('start');
      for (let sent = 0; sent < 5000; sent += 1) res.write('x');
    }, responses);
    const req = request({ port: edge.httpPort, headers: { host: HOST } }).on('error', () => {});
    req.end();
    await until(() => memory.reserved >= 5120, 'pieces that are counted');
    expect(memory.reserved).toBeLessThan(3 * 2560 + 1);
    expect(waiting).toHaveLength(0);
    req.destroy();
    await until(() => memory.reserved === 0, 'the release of what was counted');
  });
});

describe('sse-find-replace', () => {
  const stream = (...pieces: string[]): RequestListener => {
    return async (_, res) => {
      res.writeHead(200, {
        'content-type': 'text/event-stream; charset=utf-8',
        'content-length': Buffer.byteLength(pieces.join('')),
      });
      for (const piece of pieces) {
        res.write(piece);
        await new Promise(setImmediate);
      }
      res.end();
    };
  };

  it.each([
    ['data: a secret\n\n', 'data: a public\n\n'],
    ['\ufeffdata: secret\n\n', 'data: public\n\n'],
    ['id: 1\r\ndata: sec\r\nevent: x\r\ndata:ret\r\n\r\n', 'id: 1\r\ndata: sec\r\nevent: x\r\ndata:ret\r\n\r\n'],
    ['data:secret\rdata: secret\rid: 2\r\r', 'data: public\rdata: public\rid: 2\r\r'],
    [
      ': secret\n\nevent: secret\ndata\n\nretry: 10\ndata: secret',
      ': secret\n\nevent: secret\ndata\n\nretry: 10\ndata: public',
    ],
    ['datas: secret\n\ndata:  secret\n\n', 'datas: secret\n\ndata:  public\n\n'],
  ])('changes the data of %j', async (sent, expected) => {
    const policy = onMessage(rule('sse-find-replace', replacing('secret', 'public')));
    for (const pieces of [[sent], [...sent]]) {
      const endpoint = await edge.serve(HOST, stream(...pieces), policy);
      const { body, complete } = await asked();
      expect([body, complete]).toEqual([expected, true]);
      edge.remove(endpoint);
    }
  });

  it('changes each message as it arrives, as the rules say', async () => {
    const on = "res.headers['x-hide'][0] == 'yes' && req.url.path == '/'";
    const replacements = [
      { from: '(?s)a.*d', to: `\${req.method}\n$0` },
      { field: 'retry', from: '\\d+', to: '5000\ndata: x' },
    ];
    let more = (_text: string) => {};
    await edge.serve(
      HOST,
      (_, res) => {
        more = (text) => res.write(text);
        res.writeHead(200, { 'content-type': 'text/event-stream', 'x-hide': 'yes' }).write('data: ab\ndata: cd\n');
      },
      onMessage(rule('sse-find-replace', { replacements }, on)),
    );
    const res = await open();
    more('retry: 1\n\ndata: next');
    expect(String((await once(res, 'data'))[0])).toBe('data: GET\ndata: ab\ndata: cd\nretry: 5000\n\n');
    more('\n\n');
    expect(String((await once(res, 'data'))[0])).toBe('data: next\n\n');
    res.destroy();
  });

  it('changes thousands of messages that arrive together beside other work', async () => {
    const count = 5_000;
    await edge.serve(HOST, stream('data: secret\n\n'.repeat(count)), onMessage(rule('sse-find-replace', SECRET)));
    let turns = 0;
    let isOver = false;
    const onTurn = () => {
      turns += 1;
      if (!isOver) setImmediate(onTurn);
    };
    setImmediate(onTurn);
    const { body } = await asked();
    isOver = true;
    expect(body.split('\n\n')).toHaveLength(count + 1);
    expect(turns).toBeGreaterThan(count / 20);
  });

  it('leaves other responses alone, and compresses the messages that it has changed', async () => {
    const policy = {
      on_event_stream_message: [rule('sse-find-replace', replacing('secret', 'public'))],
      on_http_response: [rule('compress-response', {}, "req.url.path == '/gzip'")],
    };
    await edge.serve(
      HOST,
      (req, res) => (req.url === '/text' ? res.end('data: secret\n\n') : stream('data: secret\n\n')(req, res)),
      { policy },
    );
    expect((await asked({ path: '/text' })).body).toBe('data: secret\n\n');
    const { body } = await askRaw(edge.httpPort, HOST, { path: '/gzip', headers: { 'accept-encoding': 'gzip' } });
    expect(String(gunzipSync(body))).toBe('data: public\n\n');
  });

  it.each<[string, RequestListener]>([
    ['a message is too long', stream(`data: ${'x'.repeat(65_536)}\n\n`)],
    ['the policy fails', stream('data: fail\n\n')],
  ])('aborts the stream when %s', async (_, handler) => {
    const replacements = [{ from: 'fail', to: `\${req.headers['missing'][0]}` }];
    await edge.serve(HOST, handler, onMessage(rule('sse-find-replace', { replacements })));
    const outcome = await asked().then(
      ({ body, complete }) => `${body} ${complete}`,
      () => 'aborted',
    );
    expect(['aborted', ' false']).toContain(outcome);
  });

  it('counts messages that have not ended, and aborts a stream when there is no room for one', async () => {
    const answer: RequestListener = (_, res) =>
      void res.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: begun');
    await edge.serve(HOST, answer, onMessage(rule('sse-find-replace', SECRET)));
    const memory = bodyMemory('127.0.0.1');
    const reader = await open();
    await until(() => memory.reserved > 0, 'a message that is counted');
    reader.destroy();
    await until(() => memory.reserved === 0, 'the release of what was counted');
    const taken = 32 * 1_048_576 - 1;
    memory.reserve(taken);
    const outcome = await asked().then(
      ({ complete }) => complete,
      () => false,
    );
    memory.release(taken);
    expect(outcome).toBe(false);
    expect(memory.reserved).toBe(0);
  });

  it('refuses streams that it cannot read', async () => {
    const answer: RequestListener = (_, res) =>
      void res.writeHead(200, { 'content-type': 'text/event-stream', 'content-encoding': 'gzip' }).end();
    await edge.serve(HOST, answer, onMessage(rule('sse-find-replace', SECRET)));
    expect((await asked()).status).toBe(500);
  });

  it('reads streams of HTTP/2 upstreams, too', async () => {
    const server = createServer((_req, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' });
      res.end('data: secret\n\n');
    });
    const endpoint = await edge.serveRaw(
      HOST,
      server as never,
      onMessage(rule('sse-find-replace', replacing('secret', 'public'))),
    );
    endpoint.http2Upstream = true;
    expect((await asked()).body).toBe('data: public\n\n');
  });

  async function open(): Promise<IncomingMessage> {
    const req = request({ host: '127.0.0.1', port: edge.httpPort, agent: false, headers: { host: HOST } });
    req.end();
    return ((await once(req, 'response')) as [IncomingMessage])[0];
  }
});
