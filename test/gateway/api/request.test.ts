import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { readBody, readPageQuery } from '../../../src/gateway/api/request.ts';
import { ApiError } from '../../../src/lib/errors.ts';
import { allOperations } from '../../../src/management/operations.ts';
import { BotUserCreate, BotUserUpdate, botUsers } from '../../../src/management/resources/bot-user.ts';
import { ReservedDomainCreate, ReservedDomainUpdate } from '../../../src/management/resources/reserved-domain.ts';
import {
  BackendModuleBody,
  TlsEdgeUpdate,
  TlsTerminationModuleBody,
} from '../../../src/management/resources/tls-edge.ts';
import { fuzz } from '../../support/fuzz.ts';

/** The number of a refusal's error code. */
function refusal(work: () => unknown): number {
  try {
    work();
  } catch (error) {
    if (error instanceof ApiError && error.status === 400) return Number(error.code.replace('ERR_NGROK_', ''));
    throw error;
  }
  throw new Error('was not refused');
}

/** A refusal's message; null without a refusal. */
function messageFor(work: () => unknown): string | null {
  try {
    work();
    return null;
  } catch (error) {
    if (error instanceof ApiError) return error.message;
    throw error;
  }
}

const BACKEND = 'bkdhr_32ELHbfllc7fdX99DEBe3QekZ6H';

describe('the tolerances that official clients need', () => {
  it('treats null as not sent, at the top and inside modules', () => {
    expect(readBody(BotUserCreate, 'POST', { name: null, active: null })).toEqual({ name: '', active: true });
    expect(readBody(BotUserUpdate, 'PATCH', { name: null })).toEqual({});
    const edge = { backend: null, tls_termination: { enabled: null, terminate_at: 'upstream', min_version: null } };
    expect(readBody(TlsEdgeUpdate, 'PATCH', edge)).toEqual({
      tls_termination: { enabled: true, terminate_at: 'upstream' },
    });
  });

  it('still rejects unknown members that are null', () => {
    expect(refusal(() => readBody(BotUserCreate, 'POST', { '': null }))).toBe(214);
    expect(refusal(() => readBody(TlsEdgeUpdate, 'PATCH', { backend: { other: null } }))).toBe(214);
  });

  it('ignores the id in PATCH and PUT bodies, but not in POST', () => {
    expect(readBody(BotUserUpdate, 'PATCH', { id: 'bot_x', name: 'a' })).toEqual({ name: 'a' });
    expect(refusal(() => readBody(BotUserCreate, 'POST', { id: 'bot_x' }))).toBe(214);
  });

  it('reads a module flat, with id, and wrapped', () => {
    const module = { enabled: false, backend_id: BACKEND };
    for (const body of [module, { id: 'edgtls_x', ...module }, { id: 'edgtls_x', module }, { module }]) {
      expect(readBody(BackendModuleBody, 'PUT', body)).toEqual(module);
    }
    expect(readBody(BackendModuleBody, 'PUT', { module: { backend_id: BACKEND, enabled: null } }).enabled).toBe(true);
    expect(refusal(() => readBody(BackendModuleBody, 'PUT', { module, backend_id: BACKEND }))).toBe(214);
  });

  it('treats a missing body as empty, and an empty region as not sent', () => {
    expect(readBody(BotUserCreate, 'POST', undefined)).toEqual({ name: '', active: true });
    const sent = { domain: 'a.example.com', region: '', description: '', metadata: '' };
    expect(readBody(ReservedDomainCreate, 'POST', sent)).toMatchObject({ description: '', metadata: '' });
  });
});

describe('refusals', () => {
  const domain = (body: object) =>
    refusal(() => readBody(ReservedDomainCreate, 'POST', { domain: 'a.example.com', ...body }));
  const edge = (body: object) => refusal(() => readBody(TlsEdgeUpdate, 'PATCH', body));
  const euros = (count: number) => '€'.repeat(count);

  it('report an unknown member first, and list the known ones', () => {
    expect(refusal(() => readBody(BotUserCreate, 'POST', { name: 5, colour: 'red' }))).toBe(214);
    expect(() => readBody(BotUserCreate, 'POST', { colour: 'red' })).toThrow(
      'unknown member "colour"; supported: name, active',
    );
    expect(() => readBody(TlsEdgeUpdate, 'PATCH', { backend: { id: 1 } })).toThrow('backend: unknown member');
  });

  it.each(allOperations().filter(({ operation }) => operation.body !== null))(
    'have plain messages: $id',
    ({ operation: { method, body } }) => {
      const members = body instanceof z.ZodPipe ? body.in : body;
      for (const name of Object.keys((members as z.ZodObject).shape)) {
        for (const value of [5, 1.5, -1, 'x', 'y'.repeat(70_000), true, [], [5], {}, { a: {} }]) {
          const message = messageFor(() => readBody(body as z.ZodType, method, { [name]: value }));
          expect(message ?? '').not.toMatch(/invalid|expected|received|too (?:big|small)|unrecognized/i);
        }
      }
    },
  );

  it.each([
    [{ active: 'yes' }, 'active: must be true or false, not a string'],
    [{ name: ['s3cret'] }, 'name: must be a string, not a list'],
  ])('name the sent type and the allowed one: %j', (sent, message) => {
    expect(messageFor(() => readBody(BotUserCreate, 'POST', sent))).toBe(message);
  });

  it.each([5, 'text', [], null, true])('have code 213 for the body %j', (raw) => {
    expect(refusal(() => readBody(BotUserCreate, 'POST', raw))).toBe(213);
  });

  it('never quote a value, and only the start of a long name', () => {
    const secret = 's3cret'.repeat(20);
    const errors = [
      { domain: secret },
      { domain: 'a.example.com', region: secret },
      { domain: 'a.example.com', [secret]: 1 },
    ].map((body) => {
      try {
        return readBody(ReservedDomainCreate, 'POST', body);
      } catch (error) {
        return String(error);
      }
    });
    for (const error of errors) expect(error).not.toContain(secret);
  });

  it('have the codes of reserved domains', () => {
    expect(refusal(() => readBody(ReservedDomainCreate, 'POST', {}))).toBe(448);
    expect(domain({ domain: '*.com' })).toBe(416);
    expect(domain({ domain: '10.0.0.1' })).toBe(411);
    expect(domain({ region: 'mars' })).toBe(400);
    expect(domain({ metadata: 'm'.repeat(4097) })).toBe(421);
    expect(domain({ metadata: euros(1366) })).toBe(421);
    expect(domain({ description: 'd'.repeat(4097) })).toBe(420);
    expect(domain({ certificate_id: 'ec_x' })).toBe(227);
    expect(domain({ certificate_management_policy: { authority: 'zerossl' } })).toBe(435);
    expect(domain({ certificate_management_policy: { private_key_type: 'dsa' } })).toBe(1909);
    expect(domain({ certificate_management_policy: 'letsencrypt' })).toBe(215);
    for (const member of ['domain', 'region', 'cname_target']) {
      expect(refusal(() => readBody(ReservedDomainUpdate, 'PATCH', { [member]: 'us' }))).toBe(214);
    }
  });

  it('have the codes of TLS edges', () => {
    expect(edge({ description: 'd'.repeat(256) })).toBe(7073);
    expect(edge({ description: euros(86) })).toBe(7073);
    expect(edge({ metadata: 'm'.repeat(4097) })).toBe(7074);
    expect(edge({ hostports: ['a.example.com'] })).toBe(7104);
    expect(edge({ hostports: ['a.example.com:0'] })).toBe(7112);
    expect(edge({ hostports: ['a.example.com:443', 'A.example.com:443'] })).toBe(215);
    expect(edge({ hostports: Array.from({ length: 1001 }, (_, n) => `a${n}.example.com:443`) })).toBe(7129);
    expect(edge({ backend: {} })).toBe(242);
    expect(edge({ backend: { backend_id: 'bkdfo_x' } })).toBe(6527);
    expect(edge({ ip_restriction: { ip_policy_ids: ['x'] } })).toBe(229);
    expect(edge({ ip_restriction: { ip_policy_ids: [] } })).toBe(7025);
    expect(edge({ mutual_tls: { certificate_authority_ids: ['cert_x'] } })).toBe(228);
    expect(edge({ mutual_tls: { certificate_authority_ids: Array.from({ length: 11 }, (_, n) => `ca_${n}`) } })).toBe(
      7075,
    );
    expect(edge({ tls_termination: { terminate_at: 'agent' } })).toBe(224);
    expect(edge({ tls_termination: { min_version: '1.4' } })).toBe(219);
    expect(edge({ tls_termination: { terminate_at: 'upstream', min_version: '1.2' } })).toBe(1632);
    expect(edge({ policy: {} })).toBe(214);
    expect(edge({ traffic_policy: {} })).toBe(215);
  });

  it('have the codes of the other resources', () => {
    const create = (id: string, body: object) => {
      const schema = allOperations().find((one) => one.id === `${id}.create`)?.operation.body;
      if (!schema) throw new Error(`no ${id}`);
      return refusal(() => readBody(schema, 'POST', body));
    };
    expect(create('botUsers', { name: 'n'.repeat(256) })).toBe(4110);
    expect(create('credentials', { acl: ['bind:a b'] })).toBe(600);
    expect(create('credentials', { owner_id: 'rd_x' })).toBe(243);
    expect(create('credentials', { description: 'd'.repeat(256) })).toBe(604);
    expect(create('apiKeys', { metadata: 'm'.repeat(4097) })).toBe(605);
    expect(create('certificateAuthorities', {})).toBe(1919);
    expect(create('certificateAuthorities', { ca_pem: 'x'.repeat(65_537) })).toBe(1921);
    expect(create('tlsCertificates', {})).toBe(1922);
    expect(create('tlsCertificates', { certificate_pem: 'x' })).toBe(1901);
    expect(create('ipPolicyRules', { cidr: '10.0.0.0/8', action: 'allow' })).toBe(1405);
    expect(create('ipPolicyRules', { cidr: '10.0.0.0/8', action: 'log', ip_policy_id: 'ipp_x' })).toBe(1422);
    expect(create('ipPolicyRules', { cidr: '10.0.0.0/8', action: 'allow', ip_policy_id: 'x' })).toBe(229);
    expect(create('httpResponseBackends', { body: 'x'.repeat(65_537) })).toBe(6516);
    expect(create('httpResponseBackends', { status_code: 199 })).toBe(6517);
    expect(create('httpResponseBackends', { headers: { 'a b': 'c' } })).toBe(6522);
    expect(create('httpResponseBackends', { headers: { a: 'b\r\nc' } })).toBe(6523);
    expect(create('tunnelGroupBackends', { labels: { 'a=b': 'c' } })).toBe(6531);
    expect(create('tunnelGroupBackends', { labels: { [euros(86)]: 'c' } })).toBe(6509);
    expect(create('tunnelGroupBackends', { labels: { a: euros(86) } })).toBe(6510);
    // Without the label, the group would include more tunnels.
    expect(create('tunnelGroupBackends', { labels: { app: 'web', site: null } })).toBe(215);
    expect(create('httpResponseBackends', { headers: { a: null } })).toBe(215);
    expect(
      create('tunnelGroupBackends', {
        labels: Object.fromEntries(Array.from({ length: 51 }, (_, n) => [`k${n}`, ''])),
      }),
    ).toBe(6508);
    expect(create('endpointConfigurations', { type: 'tls' })).toBe(215);
  });
});

describe('accepted bodies', () => {
  it('may reach the limits, counted in bytes of UTF-8', () => {
    const edge = { description: `${'€'.repeat(85)}`, metadata: 'm'.repeat(4096) };
    expect(readBody(TlsEdgeUpdate, 'PATCH', edge)).toEqual(edge);
  });

  it('get the defaults of the specification', () => {
    expect(readBody(BackendModuleBody, 'PUT', { backend_id: BACKEND }).enabled).toBe(true);
    expect(readBody(TlsTerminationModuleBody, 'PUT', {})).toEqual({ enabled: true, terminate_at: 'edge' });
    const body = { domain: 'A.example.com.', certificate_management_policy: {} };
    expect(readBody(ReservedDomainCreate, 'POST', body)).toEqual({
      domain: 'a.example.com',
      certificate_management_policy: { authority: 'letsencrypt', private_key_type: 'rsa' },
    });
  });

  it('get header names in lower case', () => {
    const schema = allOperations().find(({ id }) => id === 'httpResponseBackends.create')?.operation.body;
    if (!schema) throw new Error('missing');
    expect(readBody(schema, 'POST', { headers: { 'Content-Type': 'text/plain' } })).toEqual({
      headers: { 'content-type': 'text/plain' },
    });
  });

  it('of any operation are parsed, or refused with 400 and a code', () => {
    const withBody = allOperations().flatMap(({ operation: { method, body } }) => (body ? [{ method, body }] : []));
    const names = [
      'domain',
      'backend',
      'hostports',
      'id',
      'module',
      'labels',
      'headers',
      'acl',
      'cidr',
      'enabled',
      'tls_termination',
      '__proto__',
    ];
    const json = fc.oneof(
      fc.jsonValue(),
      fc.dictionary(fc.constantFrom(...names), fc.jsonValue({ maxDepth: 3 }), { noNullPrototype: true }),
    );
    fc.assert(
      fc.property(fc.constantFrom(...withBody), json, ({ method, body }, raw) => {
        try {
          readBody(body, method, raw);
        } catch (error) {
          expect(error).toBeInstanceOf(ApiError);
          expect(error).toMatchObject({ status: 400, code: expect.stringMatching(/^ERR_NGROK_\d+$/) });
        }
      }),
      fuzz(2000),
    );
  });

  it('may be nested extremely deep', () => {
    const deep: unknown = JSON.parse(`${'{"name":'.repeat(100_000)}1${'}'.repeat(100_000)}`);
    expect(refusal(() => readBody(BotUserUpdate, 'PATCH', deep))).toBe(215);
  });
});

describe('the query of a list', () => {
  const read = (query: string) => readPageQuery(botUsers, new URLSearchParams(query));

  it('accepts limit and before_id, and the TypeScript client’s beforeId', () => {
    expect(read('')).toMatchObject({ limit: 100, beforeId: null });
    expect(read('limit=1&before_id=bot_abc')).toMatchObject({ limit: 1, beforeId: 'bot_abc' });
    expect(read('beforeId=bot_abc&limit=100')).toMatchObject({ limit: 100, beforeId: 'bot_abc' });
    expect(read('limit=&before_id=')).toMatchObject({ limit: 100, beforeId: null });
  });

  it.each([
    ['limit=0', 233],
    ['limit=101', 233],
    ['limit=-1', 233],
    ['limit=ten', 244],
    ['limit=1.5', 244],
    ['before_id=rd_abc', 227],
    ['before_id=bot_', 227],
    ['before_id=bot_a-b', 227],
    ['limit=1&limit=1', 232],
    ['before_id=bot_a&beforeId=bot_a', 232],
    ['filter=true', 231],
    ['__proto__=1', 231],
    ['constructor=1', 231],
  ])('refuses %s with %i', (query, expected) => {
    expect(refusal(() => read(query))).toBe(expected);
  });
});
