import { getEventListeners } from 'node:events';
import { inspect } from 'node:util';
import { afterEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/lib/time/clock.ts';
import { ManagementClient } from '../../src/management/client.ts';
import type { ManagementClientOptions } from '../../src/management/client-types.ts';
import { ManagementError } from '../../src/management/management-error.ts';
import { type HttpService, json, refuse, startHttpService } from '../support/http-service.ts';
import { InstantClock } from '../support/instant-clock.ts';

const KEY = 'firstpart_secretpart';
const BOT = {
  id: 'bot_1',
  uri: 'https://x/bot_users/bot_1',
  name: 'a',
  active: true,
  created_at: '2025-09-04T10:11:14Z',
};

const running: HttpService[] = [];
afterEach(async () => {
  await Promise.all(running.splice(0).map((service) => service.close()));
});

async function serve(...answers: Parameters<typeof startHttpService>): Promise<HttpService> {
  const service = await startHttpService(...answers);
  running.push(service);
  return service;
}

function clientOf(service: { url: string }, options: Partial<ManagementClientOptions> = {}) {
  return new ManagementClient({ baseUrl: service.url, apiKey: KEY, clock: new InstantClock(), ...options });
}

async function failure(work: Promise<unknown>): Promise<ManagementError> {
  const error = await work.then(
    () => new Error('did not fail'),
    (reason: unknown) => reason,
  );
  if (error instanceof ManagementError) return error;
  throw error;
}

describe('ManagementClient requests', () => {
  it('send the API key, both version headers, and a Content-Type only with a body', async () => {
    const service = await serve(json(201, BOT), json(200, BOT), (_, res) => void res.writeHead(204).end());
    const client = clientOf({ url: `${service.url}/` });
    await client.botUsers.create({ name: 'a' });
    await client.botUsers.get('bot_1');
    await client.botUsers.delete('bot_1');
    const [create, get, remove] = service.received;
    expect(create).toMatchObject({ method: 'POST', url: '/bot_users', body: '{"name":"a"}' });
    expect(create?.headers).toMatchObject({
      authorization: `Bearer ${KEY}`,
      'service-version': '2',
      'ngrok-version': '2',
      'content-type': 'application/json',
    });
    expect(get).toMatchObject({ method: 'GET', url: '/bot_users/bot_1', body: '' });
    expect(get?.headers['content-type']).toBeUndefined();
    expect(remove).toMatchObject({ method: 'DELETE', url: '/bot_users/bot_1' });
  });

  it('escape ids in the path, and reject ids that would change it', async () => {
    const service = await serve(json(200, BOT));
    const client = clientOf(service);
    await client.botUsers.get('../api_keys?x=$&');
    expect(service.received[0]?.url).toBe('/bot_users/..%2Fapi_keys%3Fx%3D%24%26');
    for (const id of ['', '.', '..']) await expect(client.botUsers.delete(id)).rejects.toThrow(TypeError);
    expect(service.received).toHaveLength(1);
  });

  it('require an API key that is valid in a header, and do not show an invalid one', () => {
    expect(() => clientOf({ url: 'http://127.0.0.1' }, { apiKey: 'se\ncret' })).toThrow(
      /^apiKey is missing, empty or contains invalid characters: pass \{ apiKey \}/,
    );
    // An environment variable that is not set, in a program without types.
    const { UNSET_KEY: apiKey } = {} as Record<string, string>;
    for (const options of [{ apiKey }, undefined])
      expect(() => new ManagementClient(options as ManagementClientOptions)).toThrow(/^apiKey is missing/);
    expect(() => clientOf({ url: 'ftp://127.0.0.1' })).toThrow(TypeError);
  });

  it('console.log shows a client and its collections in a line each, without the key', () => {
    const client = clientOf({ url: 'https://127.0.0.1/' });
    expect(inspect(client)).toBe('ManagementClient https://127.0.0.1');
    expect(inspect(client.tlsEdges)).toBe('TlsEdges https://127.0.0.1/edges/tls');
    expect(inspect(client.tlsEdges.backend)).toBe('EdgeModule https://127.0.0.1/edges/tls/{id}/backend');
    const deep = { depth: 4, showHidden: true, customInspect: false };
    expect(inspect(client, deep) + JSON.stringify(client)).not.toContain(KEY);
  });

  it.each([
    ['https://user:pass-word@127.0.0.1', /^baseUrl must have no user name/],
    ['https://127.0.0.1?pass-word', /^baseUrl must have no query/],
    ['https://127.0.0.1/#pass-word', /^baseUrl must have no query/],
    ['//pass-word', /^baseUrl must be/],
  ])('reject the base URL %s without quoting it', (url, why) => {
    expect(() => clientOf({ url })).toThrow(why);
  });

  it.each([{ retries: Number.NaN }, { retries: -1 }, { timeoutMs: 0 }, { timeoutMs: 2 ** 31 }])(
    'reject the options %o',
    (options) => {
      expect(() => clientOf({ url: 'http://127.0.0.1' }, options)).toThrow(/^(?:retries|timeoutMs) must be/);
    },
  );

  it('reject a CA that would have no effect', () => {
    expect(() => clientOf({ url: 'https://127.0.0.1' }, { ca: '/etc/gateway-ca.pem' })).toThrow(/^ca must be .* PEM/);
    expect(() => clientOf({ url: 'https://127.0.0.1' }, { ca: 'PEM', fetch })).toThrow(/^pass ca or fetch/);
  });

  it('use ngrok’s cloud without a base URL', async () => {
    const asked: string[] = [];
    const fetch = async (url: string) => {
      asked.push(url);
      return Response.json(BOT);
    };
    await new ManagementClient({ baseUrl: undefined, apiKey: KEY, fetch }).botUsers.get('bot_1');
    expect(asked).toEqual(['https://api.ngrok.com/bot_users/bot_1']);
  });
});

describe('responses', () => {
  it('may omit optional members and contain unknown ones, as those of the cloud do', async () => {
    const service = await serve(
      json(200, {
        id: 'rd_1',
        uri: 'u',
        created_at: 'c',
        domain: 'a.example.com',
        is_dev: false,
        error_redirect_url: 'x',
      }),
    );
    const domain = await clientOf(service).reservedDomains.get('rd_1');
    expect(domain).toEqual({
      id: 'rd_1',
      uri: 'u',
      created_at: 'c',
      domain: 'a.example.com',
      region: '',
      cname_target: null,
      certificate: null,
      certificate_management_policy: null,
      certificate_management_status: null,
      acme_challenge_cname_target: null,
      http_endpoint_configuration: null,
      https_endpoint_configuration: null,
      error_redirect_url: null,
    });
  });

  it('that do not match the schema are errors with the member’s name, without a retry', async () => {
    const service = await serve(json(200, { ...BOT, active: 'yes' }), (_, res) => void res.end('<html>'));
    const error = await failure(clientOf(service).botUsers.get('bot_1'));
    expect(error).toMatchObject({ code: 'ERR_MANAGEMENT_ANSWER', message: expect.stringContaining('active') });
    expect(await failure(clientOf(service).botUsers.get('bot_1'))).toMatchObject({ code: 'ERR_MANAGEMENT_ANSWER' });
    expect(service.received).toHaveLength(2);
  });
});

describe('error responses', () => {
  it('become errors with status, code, message and operation id', async () => {
    const service = await serve(refuse(404, 'ERR_NGROK_222'));
    const error = await failure(clientOf(service).botUsers.get('bot_x'));
    expect(error).toMatchObject({
      status: 404,
      code: 'ERR_NGROK_222',
      operationId: 'op_1',
      isNotFound: true,
      isUnauthorized: false,
    });
    expect(error.hasCode(222)).toBe(true);
    expect(error.message).toBe('GET /bot_users/{id}: No. (ERR_NGROK_222)');
  });

  it('are accepted without a code, without JSON and with invalid details', async () => {
    const service = await serve(
      json(404, { status_code: 404, msg: 'Not Found', details: { path: '/x' } }),
      (_, res) => void res.writeHead(400).end('<html>oops</html>'),
      json(403, { error_code: 'ERR_NGROK_203', msg: 'm', details: { n: 5 } }),
    );
    const client = clientOf(service);
    expect(await failure(client.botUsers.get('b'))).toMatchObject({ code: null, details: { path: '/x' } });
    expect(await failure(client.botUsers.get('b'))).toMatchObject({ status: 400, code: null });
    expect(await failure(client.botUsers.get('b'))).toMatchObject({
      code: 'ERR_NGROK_203',
      isUnauthorized: true,
      details: {},
    });
  });

  it('never expose the API key', async () => {
    const service = await serve(refuse(403, 'ERR_NGROK_203'));
    const error = await failure(clientOf(service).botUsers.get('b'));
    expect(JSON.stringify({ ...error, message: error.message, stack: error.stack })).not.toContain('secretpart');
  });
});

describe('the API key', () => {
  it('is not sent to another origin after a redirect', async () => {
    const thief = await serve(json(200, BOT));
    const service = await serve((_, res) => void res.writeHead(307, { location: `${thief.url}/bot_users/b` }).end());
    const error = await failure(clientOf(service).botUsers.get('b'));
    expect(error).toMatchObject({ status: 307, message: expect.stringContaining(thief.url) });
    expect(thief.received).toHaveLength(0);
  });

  it('is not sent to another origin in next_page_uri, and paging continues', async () => {
    const thief = await serve(json(200, { bot_users: [] }));
    const service = await serve(
      json(200, { bot_users: [BOT], uri: 'u', next_page_uri: `${thief.url}/elsewhere?before_id=bot_1&limit=1` }),
      json(200, { bot_users: [{ ...BOT, id: 'bot_0' }], uri: 'u', next_page_uri: null }),
    );
    const ids: string[] = [];
    for await (const bot of clientOf(service).botUsers.all({ limit: 1 })) ids.push(bot.id);
    expect(ids).toEqual(['bot_1', 'bot_0']);
    expect(service.received.map(({ url }) => url)).toEqual([
      '/bot_users?limit=1',
      '/bot_users?before_id=bot_1&limit=1',
    ]);
    expect(thief.received).toHaveLength(0);
  });
});

describe('paging', () => {
  it('fetches a page only when the loop reaches it', async () => {
    const next = 'https://api.example.com/bot_users?before_id=bot_1&limit=1';
    const service = await serve(json(200, { bot_users: [BOT], next_page_uri: next }));
    for await (const _ of clientOf(service).botUsers.all()) break;
    expect(service.received).toHaveLength(1);
  });

  it('ends at an empty page and rejects a page that refers to itself', async () => {
    const next = 'https://api.example.com/bot_users?before_id=bot_1&limit=1';
    const empty = await serve(json(200, { bot_users: [], next_page_uri: next }));
    for await (const _ of clientOf(empty).botUsers.all()) expect.unreachable();
    const circle = await serve(json(200, { bot_users: [BOT], next_page_uri: next }));
    const all = async () => {
      for await (const _ of clientOf(circle).botUsers.all());
    };
    expect(await failure(all())).toMatchObject({ code: 'ERR_MANAGEMENT_ANSWER' });
    expect(circle.received).toHaveLength(2);
  });

  it('reads the items from the list key of the resource', async () => {
    const service = await serve(json(200, { keys: [{ id: 'ak_1', uri: 'u', created_at: 'c' }], next_page_uri: null }));
    const page = await clientOf(service).apiKeys.list({ beforeId: 'ak_2', limit: 5 });
    expect(page).toEqual({ items: [expect.objectContaining({ id: 'ak_1', token: null })], nextPageUri: null });
    expect(service.received[0]?.url).toBe('/api_keys?before_id=ak_2&limit=5');
  });
});

describe('retries', () => {
  it('repeat a GET after server and network errors, with growing jitter', async () => {
    const service = await serve(
      refuse(500, null),
      (_, res) => void res.destroy(),
      (_, res) => void res.writeHead(502).end('<html>'),
      json(200, BOT),
    );
    const clock = new InstantClock(0.5);
    expect((await clientOf(service, { clock }).botUsers.get('bot_1')).id).toBe('bot_1');
    expect(clock.slept).toEqual([125, 250, 500]);
  });

  it('keep their default number when the option is undefined', async () => {
    const service = await serve(refuse(500, null));
    const options = { version: undefined, timeoutMs: undefined, retries: undefined, ca: undefined, fetch: undefined };
    expect(await failure(clientOf(service, options).botUsers.get('bot_1'))).toMatchObject({ status: 500 });
    expect(service.received.map(({ headers }) => headers['service-version'])).toEqual(['2', '2', '2', '2']);
  });

  it('end after the given number with the last error', async () => {
    const service = await serve(refuse(500, 'ERR_NGROK_1'));
    expect(await failure(clientOf(service, { retries: 2 }).botUsers.get('b'))).toMatchObject({ status: 500 });
    expect(service.received).toHaveLength(3);
  });

  it.each(['create', 'update', 'delete'] as const)('never repeat a %s that may have succeeded', async (what) => {
    const service = await serve(
      (_, res) => void res.destroy(),
      refuse(500, null),
      refuse(503, null),
      refuse(429, null),
    );
    const { botUsers } = clientOf(service);
    const call = {
      create: () => botUsers.create({}),
      update: () => botUsers.update('b', {}),
      delete: () => botUsers.delete('b'),
    };
    for (const status of [null, 500, 503, 429]) expect((await failure(call[what]())).status).toBe(status);
    expect(service.received).toHaveLength(4);
  });

  it.each([429, 503])('wait for the Retry-After of a %i plus jitter', async (status) => {
    const service = await serve(refuse(status, 'ERR_NGROK_226', { 'retry-after': '7' }), json(201, BOT));
    const clock = new InstantClock(0.5);
    await clientOf(service, { clock }).botUsers.create({});
    expect(clock.slept).toEqual([7125]);
  });

  it('accept Retry-After as a date', async () => {
    const date = new Date(Date.now() + 20_000).toUTCString();
    const service = await serve(refuse(503, null, { 'retry-after': date }), json(201, BOT));
    const clock = new InstantClock(0);
    await clientOf(service, { clock }).botUsers.create({});
    expect(clock.slept[0]).toBeGreaterThan(17_000);
    expect(clock.slept[0]).toBeLessThanOrEqual(20_000);
  });

  it('leave a long wait to the caller', async () => {
    const service = await serve(refuse(429, 'ERR_NGROK_226', { 'retry-after': '3600' }));
    const error = await failure(clientOf(service).botUsers.get('b'));
    expect(error).toMatchObject({ isRateLimited: true, retryAfterMs: 3_600_000 });
    expect(service.received).toHaveLength(1);
  });

  it('are not made after permanent errors', async () => {
    const service = await serve(refuse(400, 'ERR_NGROK_215'));
    await failure(clientOf(service).botUsers.list());
    expect(service.received).toHaveLength(1);
  });
});

describe('deadlines', () => {
  it('end a call without a response, or with an incomplete one', async () => {
    const service = await serve(
      () => {},
      (_, res) => void res.writeHead(200, { 'content-type': 'application/json' }).write('{"id":'),
    );
    const client = clientOf(service, { timeoutMs: 50, retries: 0 });
    for (let call = 0; call < 2; call += 1) {
      expect(await failure(client.botUsers.get('b'))).toMatchObject({ code: 'ERR_MANAGEMENT_TIMEOUT', status: null });
    }
  });

  it('apply to a custom fetch that ignores its signal', async () => {
    const client = clientOf(
      { url: 'http://127.0.0.1' },
      { timeoutMs: 50, retries: 0, fetch: () => new Promise(() => {}) },
    );
    expect(await failure(client.botUsers.get('b'))).toMatchObject({ code: 'ERR_MANAGEMENT_TIMEOUT', status: null });
  });

  it('are cancelled after the response', async () => {
    const running = new Set<number>();
    class WatchedClock extends InstantClock {
      override readonly after = (ms: number) => {
        running.add(ms);
        return () => running.delete(ms);
      };
    }
    const seen: number[][] = [];
    const fetch = async () => {
      seen.push([...running]);
      return Response.json(BOT);
    };
    await clientOf({ url: 'http://127.0.0.1' }, { clock: new WatchedClock(), fetch }).botUsers.get('bot_1');
    seen.push([...running]);
    expect(seen).toEqual([[30_000], []]);
  });

  it('report why the API is unreachable', async () => {
    const service = await startHttpService();
    await service.close();
    const error = await failure(clientOf(service, { retries: 0 }).botUsers.get('b'));
    expect(error).toMatchObject({
      code: 'ERR_MANAGEMENT_UNREACHABLE',
      message: expect.stringContaining('ECONNREFUSED'),
    });
  });
});

describe('a signal', () => {
  it('aborts many calls without accumulating listeners', async () => {
    class WaitingClock extends InstantClock {
      override sleep = (_ms: number, signal?: AbortSignal) => systemClock.sleep(20, signal);
    }
    const abort = new AbortController();
    // Of more than ten, Node warns on the console.
    const listeners: number[] = [];
    const fetch = async () => {
      listeners.push(getEventListeners(abort.signal, 'abort').length);
      return listeners.length > 20 ? new Promise<Response>(() => {}) : Response.json({}, { status: 500 });
    };
    const { botUsers } = clientOf({ url: 'http://127.0.0.1' }, { fetch, clock: new WaitingClock() });
    const calls = Array.from({ length: 20 }, () => botUsers.get('bot_1', { signal: abort.signal }));
    const outcomes = Promise.allSettled(calls);
    await expect.poll(() => listeners.length).toBe(40);
    expect(Math.max(...listeners)).toBe(1);
    abort.abort(new Error('shutting down'));
    for (const outcome of await outcomes) expect(outcome).toMatchObject({ reason: { message: 'shutting down' } });
  });

  it('aborts a running call with its own reason', async () => {
    const abort = new AbortController();
    const service = await serve(() => abort.abort(new Error('changed my mind')));
    await expect(clientOf(service).botUsers.get('b', { signal: abort.signal })).rejects.toThrow('changed my mind');
    expect(service.received).toHaveLength(1);
  });

  it('aborts the wait before a retry', async () => {
    const abort = new AbortController();
    const service = await serve((request, res) => {
      refuse(503, null, { 'retry-after': '30' })(request, res);
      res.once('close', () => setImmediate(() => abort.abort()));
    });
    const client = new ManagementClient({ baseUrl: service.url, apiKey: KEY });
    await expect(client.botUsers.create({}, { signal: abort.signal })).rejects.toThrow('aborted');
    expect(service.received).toHaveLength(1);
  });
});
