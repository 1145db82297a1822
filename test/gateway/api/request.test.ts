import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { readBody } from '../../../src/gateway/api/request.ts';
import { ApiError } from '../../../src/lib/errors.ts';
import { allOperations } from '../../../src/management/operations.ts';
import { BotUserCreate, BotUserUpdate } from '../../../src/management/resources/bot-user.ts';
import { ReservedDomainCreate } from '../../../src/management/resources/reserved-domain.ts';
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

  it('reads a module flat, with id, and wrapped', () => {
    const module = { enabled: false, backend_id: BACKEND };
    for (const body of [module, { id: 'edgtls_x', ...module }, { id: 'edgtls_x', module }, { module }]) {
      expect(readBody(BackendModuleBody, 'PUT', body)).toEqual(module);
    }
    expect(readBody(BackendModuleBody, 'PUT', { module: { backend_id: BACKEND, enabled: null } }).enabled).toBe(true);
    expect(refusal(() => readBody(BackendModuleBody, 'PUT', { module, backend_id: BACKEND }))).toBe(214);
  });
});

describe('refusals', () => {
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

  it('have the codes of their resources', () => {
    const create = (id: string, body: object) => {
      const schema = allOperations().find((one) => one.id === `${id}.create`)?.operation.body;
      if (!schema) throw new Error(`no ${id}`);
      return refusal(() => readBody(schema, 'POST', body));
    };
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
  it('get the defaults of the specification', () => {
    expect(readBody(BackendModuleBody, 'PUT', { backend_id: BACKEND }).enabled).toBe(true);
    expect(readBody(TlsTerminationModuleBody, 'PUT', {})).toEqual({ enabled: true, terminate_at: 'edge' });
    const body = { domain: 'A.example.com.', certificate_management_policy: {} };
    expect(readBody(ReservedDomainCreate, 'POST', body)).toEqual({
      domain: 'a.example.com',
      certificate_management_policy: { authority: 'letsencrypt', private_key_type: 'rsa' },
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
});
