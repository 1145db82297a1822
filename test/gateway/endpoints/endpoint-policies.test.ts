import { setImmediate as nextTurn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { EndpointPolicies } from '../../../src/gateway/endpoints/endpoint-policies.ts';
import type { CompiledPolicy } from '../../../src/traffic-policy/engine.ts';
import type { Compression } from '../../../src/traffic-policy/policy-subjects.ts';
import { ProcessorTime } from '../../../src/traffic-policy/state/processor-time.ts';
import { silentLog } from '../../support/silent-log.ts';
import { SteeredClock } from '../../support/steered-clock.ts';
import { connectionFrom, ENDPOINT, requestFor, responseOf } from '../../traffic-policy/fake-request.ts';

const ADD_HEADER = { type: 'add-headers', config: { headers: { 'x-a': 'b' } } };
const EXPRESSION = { expressions: ["req.url.path == '/'"], actions: [ADD_HEADER] };
const BUSY = { kind: 'error', status: 503, code: 'ERR_NGROK_5001' };

/** Policies of which every step appears to take `ms`. */
function setUp(options: { ms: number; share: number; compileMs?: number; encoderMemory?: number }) {
  const { ms, share, compileMs = 0, encoderMemory } = options;
  const clock = new SteeredClock();
  clock.skip(5 * 24 * 3_600_000);
  let step = 0;
  const now = () => {
    clock.skip(step);
    return clock.now();
  };
  const policies = new EndpointPolicies({
    ipPolicies: () => null,
    share,
    ...(encoderMemory !== undefined && { encoderMemory }),
    clock: { now, random: clock.random, sleep: (ms) => clock.sleep(ms), after: (ms, work) => clock.after(ms, work) },
    log: silentLog,
  });
  const compile = async (document: object, payer: string) => {
    const target = { protocol: 'https', url: `https://${payer}.example.com`, payer, internal: false } as const;
    step = compileMs;
    const policy = await policies.compile(JSON.stringify(document), { ...target, frame: { before: {}, after: {} } });
    // Equal policies are compiled when they are first used.
    void policy.onHttpRequest;
    step = ms;
    return policy;
  };
  const useUp = async (policy: CompiledPolicy) => {
    for (let times = 0; times < 10; times++) {
      await ask(policy);
      await nextTurn();
    }
    step = 0;
  };
  return { clock, compile, useUp };
}

const ask = (policy: CompiledPolicy, clientIp?: string) =>
  policy.onHttpRequest?.(requestFor({ connection: connectionFrom(clientIp) }));

it('a policy that is probably wrong is logged once, whenever agents bind it', async () => {
  const lines: object[] = [];
  const log = { ...silentLog, warn: (fields: object, text: string) => void lines.push({ ...fields, text }) };
  const policies = new EndpointPolicies({ ipPolicies: () => null, log: log as typeof silentLog });
  const rule = { expressions: ["req.headers['x-a'][0] == 'b'"], actions: [{ type: 'deny' }] };
  const frame = { before: {}, after: {} };
  for (const path of ['/a', '/b']) {
    const text = JSON.stringify({ on_http_request: [rule, { ...rule, expressions: [`req.url.path == '${path}'`] }] });
    const target = { protocol: 'https', url: 'https://a.example.com', payer: 'cr_1', internal: false, frame } as const;
    await policies.compile(text, target);
    await policies.compile(text, target);
  }
  const problem = expect.stringMatching(/^on_http_request\[0\].*req\.headers lacks the key/);
  const line = {
    url: 'https://a.example.com',
    warnings: 1,
    problems: [problem],
    text: 'traffic policy is probably wrong',
  };
  expect(lines).toEqual([line]);
});

it('the lines of policies in the log are limited for each authtoken, and lines that are left out are announced', async () => {
  const lines: { text: string; times?: number }[] = [];
  const write = (fields: object, text: string) => void lines.push({ ...fields, text });
  const clock = new SteeredClock();
  const log = { ...silentLog, info: write, warn: write } as typeof silentLog;
  const policies = new EndpointPolicies({ ipPolicies: () => null, clock, log });
  const rule = { actions: [{ type: 'log', config: { metadata: { x: 'y'.repeat(10_000) } } }] };
  const text = JSON.stringify({ on_http_request: [rule] });
  const logTo = async (payer: string, count: number) => {
    const target = { protocol: 'https', url: 'https://a.example.com', payer, internal: false } as const;
    const policy = await policies.compile(text, { ...target, frame: { before: {}, after: {} } });
    const before = lines.length;
    for (let asked = 0; asked < count; asked++) await ask(policy);
    return lines.slice(before).map((line) => line.text);
  };
  const allowed = Array(409).fill('traffic policy log');
  expect(await logTo('cr_1', 420)).toEqual([...allowed, 'traffic policy logs too much: lines left out']);
  expect(await logTo('cr_2', 1)).toEqual(['traffic policy log']);
  clock.skip(60_000);
  // What flowed back in a minute.
  expect(await logTo('cr_1', 400)).toHaveLength(374 + 1);
  expect(lines.at(-1)).toMatchObject({ times: 11 });
});

describe('the processor time of an authtoken', () => {
  it('is used up by its policies, which then answer 503 until it is refilled', async () => {
    const { clock, compile, useUp } = setUp({ ms: 300, share: 0.1 });
    const policy = await compile({ on_http_request: [EXPRESSION] }, 'hostile');
    const sibling = await compile({ on_http_request: [EXPRESSION, EXPRESSION] }, 'hostile');
    expect(ask(policy)).toBeUndefined();
    await useUp(policy);
    expect(ask(policy)).toMatchObject({ ...BUSY, headers: ['retry-after', expect.stringMatching(/^[1-9]\d?$/)] });
    expect(ask(sibling)).toMatchObject(BUSY);
    clock.skip(20_000);
    expect(ask(policy)).toBeUndefined();
  });

  it('is not shared with other authtokens', async () => {
    const { compile, useUp } = setUp({ ms: 300, share: 0.01 });
    const hostile = await compile({ on_http_request: [EXPRESSION] }, 'hostile');
    const honest = await compile({ on_http_request: [EXPRESSION] }, 'honest');
    await useUp(hostile);
    expect(ask(hostile)).toMatchObject(BUSY);
    expect(ask(honest)).toBeUndefined();
  });

  it.each<[string, object]>([
    ['expressions in responses', { on_http_response: [EXPRESSION] }],
    [
      'a password',
      { on_http_request: [{ actions: [{ type: 'basic-auth', config: { credentials: ['jo:correct horse'] } }] }] },
    ],
    ['patterns', { on_http_request: [{ actions: [{ type: 'url-rewrite', config: { from: '/a(.*)', to: '/b$1' } }] }] }],
    ['compression', { on_http_response: [{ actions: [{ type: 'compress-response' }] }] }],
  ])('is charged for %s', async (_, document) => {
    const { compile } = setUp({ ms: 300, share: 0.01 });
    const policy = await compile(document, 'hostile');
    for (let times = 0; times < 10; times++) {
      const request = requestFor();
      await policy.onHttpRequest?.(request);
      policy.onHttpResponse?.(request, responseOf());
      await nextTurn();
    }
    expect(ask(policy)).toMatchObject(BUSY);
  });

  it('is limited for compression, too: beyond it, responses stay as they are', async () => {
    const { clock, compile } = setUp({ ms: 0, share: 0.1 });
    const policy = await compile({ on_http_response: [{ actions: [{ type: 'compress-response' }] }] }, 'hostile');
    const compression = () => {
      const response = responseOf();
      policy.onHttpResponse?.(requestFor({ headers: ['Accept-Encoding', 'gzip'] }), response);
      return response.compression;
    };
    compression()?.time.spend(5000);
    expect(compression()).toBeUndefined();
    expect(ask(policy)).toBeUndefined();
    clock.skip(30_000);
    expect(compression()?.encoding).toBe('gzip');
  });

  it('does not allow more encoders than there is memory for; one authtoken leaves some for others', async () => {
    const { compile } = setUp({ ms: 0, share: 0.1, encoderMemory: 1_500_000 });
    const compress = { on_http_response: [{ actions: [{ type: 'compress-response' }] }] };
    const [hostile, honest] = [await compile(compress, 'hostile'), await compile(compress, 'honest')];
    const compression = (policy: CompiledPolicy) => {
      const response = responseOf();
      policy.onHttpResponse?.(requestFor({ headers: ['Accept-Encoding', 'gzip'] }), response);
      return response.compression;
    };
    const taken: Compression[] = [];
    for (let found = compression(hostile); found; found = compression(hostile)) {
      found.memory.reserve(found.bytes);
      taken.push(found);
    }
    expect(taken).toHaveLength(2);
    expect(compression(honest)?.encoding).toBe('gzip');
    taken[0]?.memory.release(taken[0].bytes);
    expect(compression(hostile)?.encoding).toBe('gzip');
  });

  it('is not measured for fixed answers and headers', async () => {
    const { compile, useUp } = setUp({ ms: 300, share: 0.01 });
    const hostile = await compile({ on_http_request: [EXPRESSION] }, 'hostile');
    const fixed = await compile({ on_http_request: [{ actions: [ADD_HEADER] }] }, 'hostile');
    await useUp(hostile);
    expect(ask(fixed)).toBeUndefined();
  });

  describe('inside of it, each client network has a share', () => {
    const [STRANGER, OTHER] = ['203.0.113.7', '198.51.100.9'];

    /** Asks so often within ten seconds, and counts the requests that were let through. */
    async function flood(policy: CompiledPolicy, clock: SteeredClock, networks: Record<string, number>) {
      const admitted: Record<string, number> = {};
      for (let at = 0; at < 10_000; at++) {
        clock.skip(1);
        for (const [clientIp, everyMs] of Object.entries(networks)) {
          if (at % everyMs !== 0) continue;
          const isAdmitted = (await ask(policy, clientIp)) === undefined;
          admitted[clientIp] = (admitted[clientIp] ?? 0) + (isAdmitted ? 1 : 0);
        }
        if (at % 10 === 0) await nextTurn();
      }
      return admitted;
    }

    it('which is refused first when nothing is left: the network that took the most', async () => {
      const { clock, compile } = setUp({ ms: 2, share: 0.05 });
      const policy = await compile({ on_http_request: [EXPRESSION] }, 'flooded');
      const { [STRANGER]: strangers = 0, [OTHER]: others = 0 } = await flood(policy, clock, {
        [STRANGER]: 2,
        [OTHER]: 100,
      });
      expect(others).toBe(100);
      expect(strangers).toBeLessThan(3_000);
    });

    it('and alone can take everything', async () => {
      const time = new ProcessorTime(0.25, new SteeredClock());
      const alone = time.shareOf({ clientIp: STRANGER });
      alone.spend(990);
      expect(alone.isSpent).toBe(false);
      alone.spend(20);
      expect(alone.isSpent).toBe(true);
    });

    it('which is one for all addresses of an IPv6 /56', () => {
      const time = new ProcessorTime(0.25, new SteeredClock());
      time.shareOf({ clientIp: '2001:db8:0:1::1' }).spend(1010);
      expect(time.shareOf({ clientIp: '2001:db8:0:ff::9' }).isSpent).toBe(true);
      expect(time.shareOf({ clientIp: '2001:db8:0:100::1' }).isSpent).toBe(false);
    });

    it('and is remembered, however many other networks come', () => {
      const time = new ProcessorTime(0.25, new SteeredClock());
      time.shareOf({ clientIp: STRANGER }).spend(1010);
      for (let network = 0; network < 2_000; network++) {
        time.shareOf({ clientIp: `10.0.${network >> 8}.${network & 255}` }).spend(0.1);
      }
      expect(time.shareOf({ clientIp: STRANGER }).isSpent).toBe(true);
      expect(time.shareOf({ clientIp: OTHER }).isSpent).toBe(false);
    });

    it('which is not compressed alone when the time for that is used up', async () => {
      const { compile } = setUp({ ms: 0, share: 0.1 });
      const policy = await compile({ on_http_response: [{ actions: [{ type: 'compress-response' }] }] }, 'flooded');
      const compression = (clientIp: string) => {
        const response = responseOf();
        const connection = connectionFrom(clientIp);
        policy.onHttpResponse?.(requestFor({ connection, headers: ['Accept-Encoding', 'gzip'] }), response);
        return response.compression;
      };
      compression(STRANGER)?.time.spend(1500);
      expect([compression(STRANGER), compression(OTHER)?.encoding]).toEqual([undefined, 'gzip']);
    });

    it('which waits alone with messages of event streams', async () => {
      const { clock, compile } = setUp({ ms: 100, share: 0.1 });
      const replace = { type: 'sse-find-replace', config: { replacements: [{ from: 'a' }] } };
      const policy = await compile({ on_event_stream_message: [{ actions: [replace] }] }, 'flooded');
      const send = async (clientIp: string) => {
        const message = { response: responseOf(), data: 'a', retry: null };
        await policy.onEventStreamMessage?.(requestFor({ connection: connectionFrom(clientIp) }), message);
        return message.data;
      };
      let late = send(STRANGER);
      while (clock.sleeping === 0) {
        await late;
        late = send(STRANGER);
      }
      expect(await send(OTHER)).toBe('');
      await clock.advance(20_000);
      expect(await late).toBe('');
    });
  });

  it('closes connections that a policy would have to inspect while none is left', async () => {
    const { compile } = setUp({ ms: 300, share: 0.01 });
    const rule = { expressions: ["conn.client_ip == '1.1.1.1'"], actions: [{ type: 'deny' }] };
    const policy = await compile({ on_tcp_connect: [rule] }, 'hostile');
    const connect = () => policy.onTcpConnect?.({ connection: connectionFrom(), endpoint: ENDPOINT });
    expect(connect()).toBeUndefined();
    for (let times = 0; times < 10; times++) connect();
    expect(connect()).toEqual({ kind: 'close' });
  });

  it('compiles a large policy in many turns of the event loop, also when the last one was equal', async () => {
    const { compile } = setUp({ ms: 0, share: 1, compileMs: 1 });
    const rules = Array.from({ length: 100 }, (_, at) => ({
      ...EXPRESSION,
      expressions: [`req.url.path == '/${at}'`],
    }));
    for (const payer of ['busy', 'busy too']) {
      let [turns, isCompiled] = [0, false];
      const count = () => {
        turns += 1;
        if (!isCompiled) setImmediate(count);
      };
      setImmediate(count);
      await compile({ on_http_request: rules }, payer);
      isCompiled = true;
      expect(turns, payer).toBeGreaterThan(20);
    }
  });

  it('leaves some for requests: compiling waits', async () => {
    const { clock, compile, useUp } = setUp({ ms: 300, share: 0.01 });
    await useUp(await compile({ on_http_request: [EXPRESSION] }, 'hostile'));
    const compiling = compile({ on_http_request: [EXPRESSION, EXPRESSION] }, 'hostile');
    await nextTurn();
    expect(clock.delays).toEqual([expect.any(Number)]);
    await clock.advance(200_000);
    expect(ask(await compiling)).toBeUndefined();
  });

  it('is divided into turns of the event loop, so that others run in between', async () => {
    const { compile } = setUp({ ms: 12, share: 1 });
    const policy = await compile({ on_http_request: [EXPRESSION] }, 'busy');
    const other = await compile({ on_http_request: [EXPRESSION] }, 'other');
    await nextTurn();
    expect(ask(policy)).toBeUndefined();
    let isDone = false;
    const waiting = Promise.resolve(ask(policy)).then(() => {
      isDone = true;
    });
    expect(ask(other)).toBeUndefined();
    for (let microtasks = 0; microtasks < 20; microtasks++) await null;
    expect(isDone).toBe(false);
    await nextTurn();
    await waiting;
    expect(isDone).toBe(true);
  });
});
