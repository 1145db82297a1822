import { describe, expect, it } from 'vitest';
import {
  type AccessChoice,
  type AccessWay,
  accessOf,
  admissionIn,
  withAccess,
  withChosenAccess,
  withoutShareLinks,
  withShareLinks,
} from '../../src/traffic-policy/access.ts';
import { PolicyInput, toTrafficPolicy } from '../../src/traffic-policy/document.ts';
import { compilePolicy } from '../../src/traffic-policy/engine.ts';

const PASSWORD = { type: 'basic-auth', config: { credentials: ['guest:a-password'] } };
const SHARE = { type: 'gateway-share-links' };
const SHARE_ONLY_RECORDED = { ...SHARE, config: { enforce: false } };
const HEADER = { type: 'add-headers', config: { headers: { a: '1' } } };
const WITHOUT_LINK = ['!actions.ngrok.gateway_share_links.let_in'];
const ADDRESSES = { type: 'restrict-ips', config: { allow: ['192.0.2.0/24'] } };
const CERTIFICATE = { type: 'terminate-tls', config: { mutual_tls_certificate_authorities: ['ca_1'] } };

const rule = (...actions: object[]) => ({ actions });
const ifPath = (...actions: object[]) => ({ expressions: ["req.url.path == '/a'"], actions });
const requests = (...rules: object[]) => ({ on_http_request: rules });

describe('who may come in', () => {
  it.each<[object, AccessWay[]]>([
    [{}, ['everyone']],
    [requests(rule(HEADER)), ['everyone']],
    [{ enabled: false, inbound: [rule(PASSWORD)] }, ['everyone']],
    [requests(rule(PASSWORD)), ['password']],
    [{ inbound: [rule(PASSWORD)] }, ['password']],
    [requests(rule({ ...PASSWORD, config: { ...PASSWORD.config, enforce: false } })), ['everyone']],
    [requests(rule({ type: 'openid-connect', config: {} })), ['sign-in']],
    [requests(rule({ type: 'oauth', config: {} })), ['sign-in']],
    [requests(rule({ type: 'jwt-validation', config: {} })), ['token']],
    [requests(rule(SHARE)), ['link']],
    [requests(rule(SHARE_ONLY_RECORDED), { ...rule(PASSWORD), expressions: WITHOUT_LINK }), ['password', 'or-link']],
    [{ on_tcp_connect: [rule(ADDRESSES)], ...requests(rule(PASSWORD)) }, ['addresses', 'password']],
    [{ on_tcp_connect: [rule(CERTIFICATE)] }, ['certificate']],
    [{ inbound: [rule(CERTIFICATE)] }, ['certificate']],
    [
      {
        on_tcp_connect: [
          rule({ ...CERTIFICATE, config: { ...CERTIFICATE.config, mutual_tls_verification_strategy: 'request' } }),
        ],
      },
      ['everyone'],
    ],
    [requests(ifPath(PASSWORD)), ['policy']],
    [requests(rule(PASSWORD), ifPath({ type: 'deny' })), ['password', 'policy']],
    [requests(ifPath(HEADER)), ['everyone']],
  ])('%j: %j', (policy, ways) => {
    expect(accessOf(toTrafficPolicy(PolicyInput.parse(policy), 'http'))).toEqual(ways);
  });

  it.each<[object, AccessChoice, object]>([
    [{}, 'everyone', requests()],
    [requests(rule(HEADER)), 'password', requests(rule(PASSWORD), rule(HEADER))],
    [requests(rule(HEADER, PASSWORD)), 'link', requests(rule(SHARE), rule(HEADER))],
    [requests(rule(PASSWORD), ifPath({ type: 'deny' })), 'everyone', requests(ifPath({ type: 'deny' }))],
    [
      { inbound: [rule(PASSWORD)], outbound: [rule(HEADER)] },
      'link',
      { inbound: [rule(SHARE)], outbound: [rule(HEADER)] },
    ],
    [{ enabled: false, inbound: [rule(HEADER)] }, 'link', requests(rule(SHARE))],
    [
      { on_tcp_connect: [rule(ADDRESSES), rule(CERTIFICATE)] },
      'password',
      { on_tcp_connect: [rule(ADDRESSES)], ...requests(rule(PASSWORD)) },
    ],
    [
      { on_tcp_connect: [rule({ ...CERTIFICATE, config: { ...CERTIFICATE.config, min_version: '1.3' } })] },
      'everyone',
      { on_tcp_connect: [rule({ type: 'terminate-tls', config: { min_version: '1.3' } })], ...requests() },
    ],
    [
      requests(rule(SHARE_ONLY_RECORDED), { ...rule(PASSWORD), expressions: WITHOUT_LINK }),
      'link',
      requests(rule(SHARE)),
    ],
  ])('%j with the choice %s becomes %j', (policy, choice, expected) => {
    const changed = withAccess(PolicyInput.parse(policy), choice, 'a-password');
    expect(changed).toEqual(expected);
    expect(accessOf(toTrafficPolicy(PolicyInput.parse(changed), 'http'))).toContain(
      choice === 'everyone' && JSON.stringify(expected).includes('deny') ? 'policy' : choice,
    );
  });

  it.each<[object, AccessChoice | null, object]>([
    [{}, 'sign-in', requests(rule({ type: 'gateway-sign-in', config: { people: ['jo@example.com'] } }))],
    [
      requests(rule(ADDRESSES), rule({ type: 'gateway-sign-in', config: { groups: ['a'], auth_id: 'b' } }, HEADER)),
      null,
      requests(
        rule(ADDRESSES),
        rule({ type: 'gateway-sign-in', config: { people: ['jo@example.com'], auth_id: 'b' } }, HEADER),
      ),
    ],
    [
      { inbound: [rule({ type: 'gateway-sign-in' })] },
      null,
      { inbound: [rule({ type: 'gateway-sign-in', config: { people: ['jo@example.com'] } })] },
    ],
  ])(
    '%j with the choice %s and one person becomes %j, and without people for all again',
    (policy, choice, expected) => {
      const changed = (before: object, people: string[], next = choice) =>
        withChosenAccess(PolicyInput.parse(before), { choice: next, links: false, admitted: { people, groups: [] } })
          .policy;
      const listed = changed(policy, ['jo@example.com']);
      expect(listed).toEqual(expected);
      expect(admissionIn(listed)).toEqual({ everyone: false, emails: ['jo@example.com'], groups: [] });
      const open = changed(listed, [], null);
      expect(JSON.stringify(open)).toBe(
        JSON.stringify(expected)
          .replace(/"people":[^\]]+\],?/, '')
          .replace(',"config":{}', ''),
      );
      expect(admissionIn(open)?.everyone).toBe(true);
    },
  );

  it('a policy whose lists of people are wrong names nobody', () => {
    for (const config of [{ people: 7 }, { groups: [] }]) {
      expect(admissionIn(PolicyInput.parse(requests(rule({ type: 'gateway-sign-in', config }))))).toBeNull();
    }
    expect(admissionIn({})).toBeNull();
  });

  it('the choice of a certificate leaves a place for the CA, which the gateway refuses until it is filled', () => {
    const changed = withAccess({}, 'certificate', '');
    expect(accessOf(toTrafficPolicy(PolicyInput.parse(changed), 'http'))).toEqual(['certificate']);
    expect(() => compilePolicy(JSON.stringify(changed), 'https')).toThrow(/mutual_tls_certificate_authorities/);
  });

  it.each<[object, object]>([
    [requests(rule(HEADER)), requests(rule(SHARE), rule(HEADER))],
    [{ inbound: [] }, { inbound: [rule(SHARE)] }],
    [requests(rule(SHARE)), requests(rule(SHARE))],
    [
      requests({ ...rule(HEADER, PASSWORD, HEADER), name: 'n' }),
      requests(
        rule(SHARE_ONLY_RECORDED),
        { name: 'n', ...rule(HEADER) },
        { name: 'n', expressions: WITHOUT_LINK, ...rule(PASSWORD) },
        { name: 'n', ...rule(HEADER) },
      ),
    ],
  ])('links let people in at %j with %j, and no longer', (policy, expected) => {
    const changed = withShareLinks(PolicyInput.parse(policy));
    expect(changed).toEqual(expected);
    const before = accessOf(toTrafficPolicy(PolicyInput.parse(policy), 'http'));
    const without = toTrafficPolicy(PolicyInput.parse(withoutShareLinks(changed)), 'http');
    expect(accessOf(without)).toEqual(before.includes('link') ? ['everyone'] : before);
    compilePolicy(JSON.stringify(changed), 'https');
  });
});
