import { describe, it } from 'vitest';
import { readablePath } from '../../src/agent/api/inspection/exchange-filter.ts';
import { maskTarget, maskTextStepwise } from '../../src/agent/inspector/masking/mask-text.ts';
import { BODY_LIMITS, JsonScanner } from '../../src/agent-protocol/rpc.ts';
import { parseStorableJson } from '../../src/gateway/api/json-object-body.ts';
import { readPageQuery, requestQuery } from '../../src/gateway/api/request.ts';
import { readAuthority, readUploadedPair } from '../../src/gateway/certificates/certificate-upload.ts';
import { answerQuery, MAX_QUERY_BYTES } from '../../src/gateway/certificates/challenges/challenge-dns-answer.ts';
import { parseHttp1Head } from '../../src/gateway/edge/clients/http1/http1-request.ts';
import { requestHeaders, responseHeaders } from '../../src/gateway/edge/http/headers.ts';
import { http2Headers } from '../../src/gateway/edge/http/http2-headers.ts';
import { guardCookies, takeSetCookies } from '../../src/gateway/edge/proxy/response-cookies.ts';
import { leadToEndpoint } from '../../src/gateway/edge/proxy/upstream-addresses.ts';
import { parseAuthorities } from '../../src/gateway/endpoint-options/mutual-tls.ts';
import { parseResponseHead } from '../../src/lib/http/response-head.ts';
import { parseJson } from '../../src/lib/json-text.ts';
import { maskUrl } from '../../src/lib/masking/mask-url.ts';
import { parseAclRule } from '../../src/management/resources/acl-rule.ts';
import { ipPolicies } from '../../src/management/resources/ip-policy.ts';
import { checkPolicyStepwise, compilePolicy } from '../../src/traffic-policy/engine.ts';
import { requestCookies } from '../../src/traffic-policy/scope/subject-scope.ts';
import { parseUserAgent } from '../../src/traffic-policy/scope/user-agent.ts';
import { verifierOf } from '../../src/traffic-policy/webhooks/providers.ts';
import type { Webhook } from '../../src/traffic-policy/webhooks/webhook.ts';
import { expectBlink } from '../support/blink.ts';
import { type FakeRequest, requestFor, responseOf } from '../traffic-policy/fake-request.ts';

const HEADERS = 64 * 1024;
const BODY = 1024 * 1024;
const POLICY = 64 * 1024;
/** More is not parsed. */
const WEBHOOK = 128 * 1024;
const EXPRESSION = 4 * 1024;
/** Of requests to the agent's API. */
const AGENT_BODY = 256 * 1024;

const FORM = 'application/x-www-form-urlencoded';
const MULTIPART = 'multipart/form-data; boundary=a';
const EVENTS = 'text/event-stream';

const fill = (piece: string, length: number) => piece.repeat(length / piece.length);
/** Parses a text that was made before. */
const over = (text: string, parse: (text: string) => unknown) => () => parse(text);
const names = (length: number) => Array.from({ length }, (_, at) => `a${at}`);
const record = (length: number) => Object.fromEntries(names(length).map((name) => [name, `${version}`]));
const inserted = (length: number, expression: (at: number) => string) =>
  names(length)
    .map((_, at) => `\${${expression(at)}}`)
    .join('');
const fields = (name: string, value: string, times: number) =>
  Array.from({ length: times }, () => [name, value]).flat();

function mailgun(body: string): unknown {
  const webhook: Webhook = {
    ...{ method: 'POST', url: 'https://a/', body: Buffer.from(body), contentType: 'application/json' },
    ...{ secret: 'a', nowMs: 0, header: () => '', note: () => {} },
    signingKey: () => Promise.reject(new Error('there is none')),
    measured: (work) => work(),
  };
  return verifierOf('mailgun')?.(webhook);
}

/** JSON in strings in JSON, until it is as long. */
function deepJson(length: number): string {
  let text = '{"a":"b"}';
  while (text.length < length) text = JSON.stringify([text, text]);
  return text;
}

let version = 0;

type Rule = { expressions?: string[]; actions: { type: string; config?: unknown }[] };

/** Another policy each time: the last one is remembered. */
const checkRules = (rules: Rule[]) => {
  const text = JSON.stringify({ on_http_request: rules.map((rule) => ({ name: `${++version}`, ...rule })) });
  return checkPolicyStepwise(text, ['https']);
};
const checkAction = (type: string, config: object) => checkRules([{ actions: [{ type, config }] }]);
/** The spaces differ, so that the expression is not in the cache. */
const checkExpression = (text: string) =>
  checkRules([{ expressions: [text + ' '.repeat(++version % 90)], actions: [{ type: 'deny' }] }]);

const JWT = {
  issuer: { allow_list: [{ value: 'https://a' }] },
  http: { tokens: [{ type: 'jwt', method: 'body', name: 'token' }] },
  jws: { allowed_algorithms: ['RS256'], keys: { sources: { additional_jkus: ['https://a/keys'] } } },
};

function run(phase: 'on_http_request' | 'on_http_response', type: string, config: object, fake: FakeRequest): unknown {
  const ports = { fetch: async () => Buffer.from('{"keys":[]}') };
  const policy = compilePolicy(JSON.stringify({ [phase]: [{ actions: [{ type, config }] }] }), 'https', { ports });
  const request = requestFor(fake);
  if (phase === 'on_http_request') return policy.onHttpRequest?.(request);
  return policy.onHttpResponse?.(request, responseOf(200, ['content-type', 'text/plain']));
}

const tokenIn = (type: string, body: string) =>
  run('on_http_request', 'jwt-validation', JWT, { method: 'POST', body, headers: ['content-type', type] });

function rpc(body: string): unknown {
  const scanner = new JsonScanner(BODY_LIMITS);
  try {
    return scanner.push(Buffer.from(body)) && scanner.parse();
  } catch {
    return null;
  }
}

/** Refusing is fine. */
const attempt = (work: () => unknown) => {
  try {
    return work();
  } catch {
    return null;
  }
};

/** A query with as many labels as a name can have. */
function dnsQuery(): Buffer {
  const query = Buffer.alloc(MAX_QUERY_BYTES, 0);
  query.set([0, 1, 1, 0, 0, 1]);
  for (let at = 12; at < 12 + 250; at += 2) query.set([1, 0x61], at);
  query.set([0, 0, 16, 0, 1], 262);
  return query;
}

/** Reads the head of a response, and does with it what is done before it reaches the client. */
const respond = (text: string) =>
  attempt(() => {
    const { headers, connection, status } = parseResponseHead(text);
    const passed = responseHeaders(headers, connection, status);
    leadToEndpoint(passed, () => UPSTREAM_NAMES);
    takeSetCookies(passed);
    guardCookies(passed, 'a.example.com', ['api.example.com']);
  });
const UPSTREAM_NAMES = { forwardsTo: 'http://b:80', sentHost: 'b', clientHost: 'a', clientScheme: 'https' };
const answer = (lines: string) => `HTTP/1.1 200 OK\r\n${lines}`;

const pem = (label: string) => `-----BEGIN ${label}-----`;
const query = (text: string) => attempt(() => readPageQuery(ipPolicies, requestQuery({ url: `/?${text}` })));

const ROWS: Readonly<Record<string, readonly [string, () => unknown][]>> = {
  'of a client': [
    ['cookies in one header', () => requestCookies(['cookie', fill('a=1;', HEADERS)])],
    [
      'cookies in many headers',
      () => requestCookies(Array.from({ length: 200 }, () => ['cookie', fill('a=1;', 320)]).flat()),
    ],
    ['a user agent', () => parseUserAgent(fill('Mozilla/5.0 (', HEADERS))],
    ['a header of blanks', () => parseHttp1Head(`GET / HTTP/1.1\r\na:${fill(' ', 60_000)}b\r\n`)],
    ['many headers', () => attempt(() => parseHttp1Head(`GET / HTTP/1.1\r\n${fill('a:\r\n', 60_000)}`))],
    [
      'headers that Connection names',
      () => requestHeaders(fields('a', '', 200), fill('a,', HEADERS), { address: '192.0.2.1', protocol: 'https' }),
    ],
    ['headers for HTTP/2', () => http2Headers(fields('cookie', fill('a', 32), 2_000))],
    ['headers for HTTP/2 with many names', () => http2Headers(names(2_000).flatMap((name) => [name, '1']))],
    [
      'Accept-Encoding',
      () =>
        run('on_http_response', 'compress-response', {}, { headers: ['accept-encoding', fill('gzip;q=0,', HEADERS)] }),
    ],
    [
      'a token in JSON',
      () => tokenIn('application/json', `{${names(6_500).map((name) => `"${name}":1`)},"token":"a.b.c"}`),
    ],
    [
      'a token in nested JSON',
      () => tokenIn('application/json', `{"token":"a.b.c","a":${fill('[', 30_000)}${fill(']', 30_000)}}`),
    ],
    [
      'a long token',
      () => tokenIn('application/json', `{"token":"${fill('a', 5_000)}.${fill('a', 5_000)}.${fill('a', 5_000)}"}`),
    ],
    ['a token in a form', () => tokenIn(FORM, fill('a&', HEADERS))],
    ['nested JSON of a webhook', over(fill('[', WEBHOOK / 2) + fill(']', WEBHOOK / 2), mailgun)],
    ['members of a webhook', over(`{${names(13_000).map((name) => `"${name}":1`)}}`, mailgun)],
    ['a webhook that is too long', over(`{${names(90_000).map((name) => `"${name}":1`)}}`, mailgun)],
    ['a DNS query', () => answerQuery(dnsQuery(), { name: 'a', nameServer: 'b', texts: () => [] }, 'udp')],
  ],
  'of a tenant': [
    ['a request of an agent with many values', () => rpc(`{"a":[${fill('1,', 16_000)}1]}`)],
    ['a request of an agent with too many values', () => rpc(`{"a":[${fill('1,', BODY)}1]}`)],
    ['a long text of an agent', () => rpc(`{"a":"${fill('\\n', BODY - 100)}"}`)],
    ['a rule of an ACL', () => parseAclRule(`bind:${fill('=', BODY)}`)],
    ['parameters of a list', () => query(fill('limit&', HEADERS))],
    ['a parameter of a list', () => query(`before_id=${fill('%41', HEADERS)}`)],
    ['values of JSON', () => parseStorableJson(Buffer.from(`["\\u0041",${fill('1,', BODY - 100)}1]`))],
    ['labels of PEM', () => attempt(() => readAuthority(fill(`${pem('A')}:-----END A-----`, BODY)))],
    ['open blocks of PEM', () => attempt(() => readUploadedPair(fill(pem('A'), BODY), ''))],
    ['a long label of PEM', () => attempt(() => readUploadedPair(pem(fill('A', BODY)), ''))],
    [
      'authorities of clients',
      () =>
        attempt(() =>
          parseAuthorities('a', {
            mutual_tls_ca: Buffer.from(fill(pem('CERTIFICATE'), 384 * 1024)).toString('base64'),
          }),
        ),
    ],
  ],
  'of who may call the agent': [
    ['values of JSON', () => parseJson(`[${fill('1,', AGENT_BODY - 100)}1]`)],
    ['members of JSON', () => parseJson(`{${names(25_000).map((name) => `"${name}":1`)}}`)],
    ['lists of JSON', () => parseJson(`${fill('[', 60)}${fill('[],', 255_000)}1${fill(']', 60)}`)],
    ['JSON that never ends', () => attempt(() => parseJson(fill('[1,', AGENT_BODY)))],
  ],
  'of an upstream': [
    ['folded lines', () => respond(answer(`a: b\r\n${fill(' c\r\n', HEADERS)}`))],
    ['folded lines of blanks', () => respond(answer(`a: b\r\n${fill(' \r\n', HEADERS)}`))],
    ['lines that are no headers', () => respond(answer(fill('a\n', HEADERS)))],
    ['headers that end in LF', () => respond(answer(fill('a:\n', HEADERS)))],
    ['blanks around a name', () => respond(answer(`a${fill(' ', HEADERS)}b: c\n`))],
    ['blanks in the status line', () => respond(`HTTP/1.1${fill(' \v', HEADERS)}200 OK`)],
    ['blanks before a status of four digits', () => respond(`HTTP/1.1${fill(' \t', HEADERS)}2000`)],
    ['lengths', () => respond(answer(fill('content-length:1\r\n', HEADERS)))],
    ['encodings', () => respond(answer(`transfer-encoding: ${fill('chunked,', HEADERS)}chunked\r\n`))],
    [
      'headers that Connection names',
      () => respond(answer(`${fill('a:\r\n', HEADERS / 2)}connection: ${fill('a,', HEADERS / 2)}`)),
    ],
    ['seconds to keep alive', () => respond(answer(`keep-alive: ${fill('timeout=1', HEADERS)}`))],
    ['cookies', () => respond(answer(fill('set-cookie:a=b;domain=b\r\n', HEADERS)))],
    ['attributes of a cookie', () => respond(answer(`set-cookie: a=b${fill(';domain=b', HEADERS)}`))],
    ['headers that are taken out', () => respond(answer(fill('clear-site-data:"*"\r\n', HEADERS)))],
    ['addresses', () => respond(answer(fill('location:http://b/\r\n', HEADERS)))],
    ['an address', () => respond(answer(`location: http://${fill('b.', HEADERS)}`))],
    ['an address with many ends', () => respond(answer(`refresh: ${fill('0;url=', HEADERS)}http://b/`))],
  ],
  'of a tenant, as a policy': [
    ['a loop', () => checkExpression(`${fill('[].exists(a,a)||', EXPRESSION - 100)}true`)],
    ['members', () => checkExpression(`req${fill('.a', EXPRESSION - 100)}`)],
    ['conditions', () => checkExpression(`${fill('1?1:', EXPRESSION - 100)}1`)],
    ['lists', () => checkExpression(`[${fill('[],', EXPRESSION - 100)}1]==[]`)],
    ['lists that just fit', () => checkExpression(`[${fill('[],', 990)}1]==[]`)],
    ['maps that just fit', () => checkExpression(`[${fill('{1:1},', 990)}1]==[]`)],
    ['loops that just fit', () => checkExpression(`${'[].exists(a,a)||'.repeat(20)}true`)],
    ['conditions that just fit', () => checkExpression(`${fill('1?1:', 990)}1`)],
    ['indexes', () => checkExpression(`a${fill('[1]', EXPRESSION - 100)}`)],
    ['an open bracket', () => checkExpression(fill('[', 30) + fill('1,', 960))],
    ['a text', () => checkExpression(`'${fill('\\n', EXPRESSION - 100)}'=='a'`)],
    [
      'as many expressions as fit',
      () =>
        checkRules(
          Array.from({ length: 10 }, (_, at) => ({
            expressions: [`${at + version}${fill('+1', 990)}>0`, `${at + version}${fill('||[1]==[]', 890)}`],
            actions: [{ type: 'deny' }],
          })),
        ),
    ],
    [
      'patterns',
      () =>
        checkExpression(
          names(70)
            .map((name) => `''.matches('(${name}${version}){400}')`)
            .join('||'),
        ),
    ],
    ['insertions', () => checkAction('custom-response', { body: inserted(4_000, () => '1') })],
    [
      'insertions that just fit',
      () => checkAction('custom-response', { body: inserted(95, (at) => `${at}+${version}+1`) }),
    ],
    [
      'insertions of patterns',
      () => checkAction('custom-response', { body: inserted(95, (at) => `''.matches('(${at}b${version}){200}')`) }),
    ],
    ['headers', () => checkAction('add-headers', { headers: record(5_000) })],
    ['headers that just fit', () => checkAction('add-headers', { headers: record(2_400) })],
    ['metadata', () => checkAction('log', { metadata: record(2_400) })],
    [
      'ranges',
      () => checkAction('restrict-ips', { allow: names(1_000).map((_, at) => `10.${at >> 8}.${at & 255}.0/24`) }),
    ],
    ['an unknown member', () => checkAction('deny', record(2_400))],
    ['unknown actions', () => checkRules(names(90).map(() => ({ actions: names(15).map((type) => ({ type })) })))],
    [
      'JSON with many values',
      () => checkPolicyStepwise(`{"on_http_request":[${fill('1,', POLICY - 100)}1]}`, ['https']),
    ],
    [
      'nested JSON',
      () => checkPolicyStepwise(`{"a":${fill('[', POLICY / 2 - 100)}${fill(']', POLICY / 2 - 100)}}`, ['https']),
    ],
  ],
  'of a client, in the inspector': [
    ['names of JSON', () => maskTextStepwise(fill('"password":', BODY), null)],
    [
      'members of JSON',
      () =>
        maskTextStepwise(
          names(30_000)
            .map((name) => `"${name}":1`)
            .join(),
          null,
        ),
    ],
    ['a secret that contains much', () => maskTextStepwise(`"password":[${fill('"",', BODY)}`, null)],
    ['backslashes in JSON', () => maskTextStepwise(fill('"\\', BODY), null)],
    ['parameters of a URL', () => maskTextStepwise(fill('?a=1', BODY), null)],
    ['names in a URL without values', () => maskTextStepwise(`${fill(`&${'a'.repeat(199)}`, BODY)}=`, null)],
    ['passwords of URLs', () => maskTextStepwise(fill('//a:b@', BODY), null)],
    ['a form of separators', () => maskTextStepwise(fill('&', BODY), FORM)],
    ['a form of names', () => maskTextStepwise(fill('a1=&', BODY / 4), FORM)],
    ['a form without an end', () => maskTextStepwise(fill('a', BODY), FORM)],
    [
      'heads of parts',
      () => maskTextStepwise(fill(`--a\n${fill(';name=', 8_190)}\n\nb\n`, BODY), 'multipart/form-data'),
    ],
    ['encoded heads of parts', () => maskTextStepwise(fill(`--a\n${fill(';name*=', 8_190)}\n\nb\n`, BODY), MULTIPART)],
    ['lines of a part', () => maskTextStepwise(`--a\n\n${fill('\n', BODY)}`, MULTIPART)],
    ['data of one event', () => maskTextStepwise(fill('data:\n', BODY), EVENTS)],
    ['data of many events', () => maskTextStepwise(fill('data:a\n\n', BODY / 4), EVENTS)],
    ['lines of events', () => maskTextStepwise(fill('\n', BODY / 4), EVENTS)],
    ['strings of JSON that may contain something', () => maskTextStepwise(fill('"a=:bcdefgh",', BODY / 4), null)],
    ['JSON in JSON in JSON', () => maskTextStepwise(deepJson(BODY / 8), 'application/json')],
    ['a string that contains JSON', () => maskTextStepwise(JSON.stringify(fill('{"a":"b"},', BODY / 4)), null)],
    ['base64 of JSON', () => maskTextStepwise(JSON.stringify(`eyJ${fill('ab', BODY / 2)}`), null)],
    ['names and values', () => maskTextStepwise(fill('{"name":"password","value":', BODY), null)],
    ['values and names', () => maskTextStepwise(fill('"value":"a","name":"', BODY), null)],
    ['one long value of many', () => maskTextStepwise(fill('"value":"', BODY), null)],
    ['elements that do not end', () => maskTextStepwise(fill('<password>', BODY), 'application/xml')],
    ['elements that do not begin', () => maskTextStepwise(fill('<a ', BODY), 'application/xml')],
    ['attributes', () => maskTextStepwise(`<a ${fill(' name="a" value=', BODY)}>`, 'text/html')],
    [
      'attributes of one tag',
      () => maskTextStepwise(fill(`<a ${' name="pin" value="1"'.repeat(300)}>`, BODY), 'text/html'),
    ],
    ['pairs', () => maskTextStepwise(fill('password=a1 ', BODY), 'text/plain')],
    ['pairs without values', () => maskTextStepwise(fill('password: ', BODY), 'text/plain')],
    ['quotes in pairs', () => maskTextStepwise(fill("password='\\", BODY), 'text/plain')],
    ['one long name', () => maskTextStepwise(`${fill('a', BODY)}=1`, 'text/plain')],
    ['names with dots', () => maskTextStepwise(fill('a.b-', BODY), 'text/plain')],
    ['beginnings of tokens', () => maskTextStepwise(fill('eyJabcdefgh.', BODY), 'text/plain')],
    ['other beginnings of tokens', () => maskTextStepwise(fill('Bearer aaaaaaaa ', BODY), 'text/plain')],
    ['beginnings of keys', () => maskTextStepwise(fill('-----BEGIN PRIVATE KEY-----', BODY), 'text/plain')],
    ['digits', () => maskTextStepwise(fill('1234 ', BODY), 'text/plain')],
    ['encoded parameters', () => maskTextStepwise(fill('?a=%3D', BODY / 4), 'text/plain')],
    ['fields with encoded content', () => maskTextStepwise(fill('a=%3Ab:cdefgh&', BODY / 4), FORM)],
    ['one field with encoded content', () => maskTextStepwise(`a=${fill('%25', BODY)}`, FORM)],
    ['an encoded target', () => maskTarget(`/?a=${fill('%253Da', HEADERS)}`)],
    ['a path', () => maskUrl(`/?${fill('%41&', HEADERS)}`)],
    ['a readable path', () => readablePath(fill('%41&', HEADERS))],
  ],
};

describe.each(Object.entries(ROWS))('the largest input %s takes no longer than a blink', (_, rows) => {
  it.each(rows)('%s', async (_, parse) => {
    await expectBlink(parse);
  });
});
