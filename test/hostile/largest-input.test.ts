import { describe, expect, it } from 'vitest';
import { parseHttp1Head } from '../../src/gateway/edge/clients/http1/http1-head.ts';
import { parseAclRule } from '../../src/management/resources/acl-rule.ts';
import { requestCookies } from '../../src/traffic-policy/scope/cookies.ts';
import { parseUserAgent } from '../../src/traffic-policy/scope/user-agent.ts';
import { verifierOf } from '../../src/traffic-policy/webhooks/providers.ts';
import type { Webhook } from '../../src/traffic-policy/webhooks/webhook.ts';

const HEADERS = 64 * 1024;
const BODY = 1024 * 1024;
const fill = (piece: string, length: number) => piece.repeat(length / piece.length);

function mailgun(body: string): unknown {
  const webhook: Webhook = {
    ...{ method: 'POST', url: 'https://a/', body: Buffer.from(body), contentType: 'application/json' },
    ...{ secret: 'a', nowMs: 0, header: () => '', fetch: async () => Buffer.alloc(0), note: () => {} },
    measured: (work) => work(),
  };
  return verifierOf('mailgun')?.(webhook);
}

describe('the largest input takes no longer than a blink', () => {
  it.each<[string, () => unknown]>([
    ['cookies in one header', () => requestCookies(['cookie', fill('a=1;', HEADERS)])],
    [
      'cookies in many headers',
      () => requestCookies(Array.from({ length: 200 }, () => ['cookie', fill('a=1;', 320)]).flat()),
    ],
    ['a user agent', () => parseUserAgent(fill('Mozilla/5.0 (', HEADERS))],
    ['a header of blanks', () => parseHttp1Head(`GET / HTTP/1.1\r\na:${fill(' ', 60_000)}b\r\n`)],
    ['a rule of an ACL', () => parseAclRule(`bind:${fill('=', BODY)}`)],
    ['nested JSON of a webhook', () => mailgun(fill('[', BODY / 2) + fill(']', BODY / 2))],
    ['members of a webhook', () => mailgun(`{${Array.from({ length: 90_000 }, (_, at) => `"${at}":1`).join(',')}}`)],
  ])('%s', (_, parse) => {
    const took = Array.from({ length: 3 }, () => {
      const before = process.cpuUsage();
      parse();
      const { user, system } = process.cpuUsage(before);
      return (user + system) / 1000;
    });
    // The bound is 20 ms; a machine may be five times slower.
    expect(Math.min(...took)).toBeLessThan(100);
  });
});
