import { webcrypto } from 'node:crypto';
import 'reflect-metadata';
import * as x509 from '@peculiar/x509';
import { beforeAll, describe, expect, it } from 'vitest';
import { compileExpression, ExpressionError } from '../../src/traffic-policy/cel/expression.ts';
import { jsonOf } from '../../src/traffic-policy/cel/values.ts';
import { PolicyFailure } from '../../src/traffic-policy/policy-errors.ts';
import { standalonePorts } from '../../src/traffic-policy/ports.ts';
import { loadCertificateLibrary } from '../../src/traffic-policy/scope/certificate-variables.ts';
import { DECLARATIONS } from '../../src/traffic-policy/scope/policy-variables.ts';
import { SubjectScope } from '../../src/traffic-policy/scope/subject-scope.ts';
import { connectionFrom, ENDPOINT, requestFor, responseOf } from './fake-request.ts';

const CHROME = 'Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 Chrome/120.0.1.2 Mobile Safari/537.36';

const REQUEST = {
  method: 'POST',
  target: '/api/v1/Caf%C3%A9?x=1&x=2&name=J%20D&empty=',
  headers: [
    ...['User-Agent', CHROME, 'X-Forwarded-For', '10.1.2.3', 'x-dup', 'one', 'X-Dup', 'two'],
    ...['Content-Type', 'application/json; Charset="utf-8"', 'Content-Length', '42', 'Content-Encoding', 'gzip, br'],
    ...['Cookie', 'session=abc; theme="dark"; session=def; \u00a0__Host-a=planted'],
  ],
};

const RESPONSE = responseOf(503, [
  ...['Content-Type', 'text/html', 'Location', '/x', 'Set-Cookie', 'a=1; Path=/', 'Content-Length', '0'],
  ...[
    'set-cookie',
    'a=2; Path=/deep; Max-Age=60; Secure; HttpOnly; SameSite=Lax; Priority=High; Expires=Thu, 01 Jan 2026 00:00:00 GMT',
  ],
]);

function scopeFor(): SubjectScope {
  const ports = {
    ...standalonePorts(),
    wallClock: () => Date.UTC(2026, 6, 1, 12, 30, 15, 500),
    secret: (vault: string, name: string) => (vault === 'main' && name === 'token' ? 's3cret' : null),
  };
  const scope = new SubjectScope(ports, connectionFrom(), ENDPOINT, requestFor(REQUEST));
  scope.begin(RESPONSE);
  scope.setVariable('count', 3n);
  scope.setVariable('list', ['b', 'a']);
  scope.setResult('basic_auth', { credentials: { authorized: true, username: 'jo' } });
  return scope;
}

function result(expression: string, scope = scopeFor()): unknown {
  return jsonOf(compileExpression(expression, DECLARATIONS.on_http_response).evaluate(scope));
}

describe('variables', () => {
  it.each<[string, unknown]>([
    ['conn.client_ip', '203.0.113.7'],
    ['conn.client_port', 50123],
    ['conn.server_port == 443', true],
    ['conn.bytes_in + conn.bytes_out', 120],
    ['conn.ts.start', '2026-01-02T03:04:05Z'],
    ["conn.client_ip.geo.location.country_code == 'US'", false],
    ['conn.geo.country', ''],
    ["'com.amazonaws' in conn.client_ip.categories", false],
    ['conn.client_ip.is_tor_node || conn.client_ip.is_on_blocklist', false],
    ['conn.client_ip.as.number', 0],
    ['conn.tls.sni', ''],
    ['endpoint.addr', 'cam.example.com:443'],
    ['endpoint.protocol', 'https'],
    ["timestamp(time.now) > timestamp('2026-01-01T00:00:00Z')", true],
    ['timestamp(time.now).getHours()', 12],
    ['vars.count + 1', 4],
    ["vars.list[0] + vars['list'][1]", 'ba'],
    ['actions.ngrok.basic_auth.credentials.authorized', true],
    ['req.method', 'POST'],
    ['req.version', 'HTTP/1.1'],
    ['req.host', 'cam.example.com'],
    ['req.url', 'https://cam.example.com/api/v1/Caf%C3%A9?x=1&x=2&name=J%20D&empty='],
    ['req.url.scheme', 'https'],
    ['req.url.path', '/api/v1/Café'],
    ['req.url.raw_path', '/api/v1/Caf%C3%A9'],
    ['req.url.query', 'x=1&x=2&name=J%20D&empty='],
    ["req.url.query_params['x']", ['1', '2']],
    ["req.url.query_params['name'][0]", 'J D'],
    ["req.headers['User-Agent'][0].contains('Chrome')", true],
    ["req.headers['x-dup']", ['one', 'two']],
    ["'X-DUP' in req.headers", true],
    ["'x-absent' in req.headers", false],
    ["req.headers.exists(name, name == 'x-dup')", true],
    ['req.content_type', 'application/json'],
    ["req.content_type.parameters['charset']", 'utf-8'],
    ['req.content_length', 42],
    ["'br' in req.content_encoding", true],
    ["req.cookies['session'].map(c, c.value)", ['abc', 'def']],
    ["req.cookies['theme'][0].value", 'dark'],
    ["hasReqCookie('__Host-a')", false],
    ['req.user_agent.name', 'Chrome'],
    ['req.user_agent.os + req.user_agent.os_version', 'Android14'],
    ['req.user_agent.is_mobile && !req.user_agent.is_bot', true],
    ['req.ts.header_received', '2026-07-01T12:30:15.500Z'],
    ['res.status_code >= 500', true],
    ['res.headers', expect.objectContaining({ 'content-type': ['text/html'] })],
    ["res.cookies['a'].map(c, c.value)", ['2', '1']],
    ["res.cookies['a'][0].max_age", '60s'],
    ["res.cookies['a'][0].secure && res.cookies['a'][0].http_only", true],
    ["res.cookies['a'][0].unparsed_attributes", ['Priority=High']],
    ["res.cookies['a'][0].expires", '2026-01-01T00:00:00Z'],
    ['req.Method', 'POST'],
    ['req.ContentLength', 42],
    ['res.StatusCode', 503],
    ["res.StatusCode == '503'", true],
    ["'200' != res.StatusCode", true],
    ["req.ContentLength == '42'", true],
    ['conn.ClientIP', '203.0.113.7'],
    ['req.URL', 'https://cam.example.com/api/v1/Caf%C3%A9?x=1&x=2&name=J%20D&empty='],
    ["req.Headers['x-dup'][0]", 'one'],
  ])('%s', (expression, value) => {
    expect(result(expression)).toEqual(value);
  });

  it.each<[string, boolean]>([
    ['has(req.content_length)', true],
    ['has(req.url.port)', false],
    ['has(req.url.path)', true],
    ['has(vars.count)', true],
    ['has(vars.nothing)', false],
    ["has(req.headers['X-Dup'])", true],
    ["has(req.headers['x-absent'])", false],
    ['has(actions.ngrok.rate_limit)', false],
    ['has(vars.list[5])', false],
  ])('%s', (expression, value) => {
    expect(result(expression)).toBe(value);
  });
});

describe('functions', () => {
  it.each<[string, unknown]>([
    ["hasReqHeader('x-dup') && !hasReqHeader('nope')", true],
    ["getReqHeader('X-Dup')", ['one', 'two']],
    ["getReqHeader('nope')", []],
    ["hasQueryParam('x') && getQueryParam('x').size() == 2", true],
    ["hasReqCookie('session') ? getReqCookie('session').value : ''", 'abc'],
    ["getResHeader('content-type').join(',')", 'text/html'],
    ["hasResCookie('a') && getResCookie('a').path == '/deep'", true],
    ["inCidrRange('10.1.2.3', '10.0.0.0/8')", true],
    ["inCidrRange('::ffff:10.1.2.3', '10.0.0.1/8')", true],
    ["inCidrRange('2001:db8::1', '2001:db8::/32')", true],
    ["inCidrRange('10.1.2.3', 'rubbish')", false],
    ["inCidrRanges('10.1.2.3', ['192.168.0.0/16', '10.1.2.3'])", true],
    ["'172.31.0.1'.isPrivateIp() && !'8.8.8.8'.isPrivateIp()", true],
    ['rand.double() < 1.0', true],
    ['rand.int() in [0, 1]', true],
    ['rand.int(3, 3)', 3],
    ["secrets.get('main', 'token')", 's3cret'],
    ["base64.encode(b'hi') + base64.encode('hi')", 'aGk=aGk='],
    ["string(base64.decode('aGk='))", 'hi'],
    ["'hi'.encodeBase64().decodeBase64()", 'hi'],
    ["basic_auth.encode('u', 'p')", 'Basic dTpw'],
    ['json.decode(\'{"a":[1,2.5]}\').a', [1, 2.5]],
    ["{'a': 1}.encodeJson()", '{"a":1}'],
    ["json.encode([1, 'b', null])", '[1,"b",null]'],
    ["'{}'.isJson() && !'{'.isJson()", true],
    ["queryString.decode('a=1&a=2').a", ['1', '2']],
    ["{'a': ['1', '2']}.encodeQueryString()", 'a=1&a=2'],
    ["url.parse('https://u:p@h:81/p?q=1').port", '81'],
    ["'https://h/p?q=1'.parseUrl().query_params.q[0]", '1'],
    ["'a b/c'.escapeUrl().unescapeUrl()", 'a b/c'],
    ["'https://x.y'.isURL() && !'x y'.isURL()", true],
    ["hash.sha256('abc')", 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'],
    ["'abc'.md5()", '900150983cd24fb0d6963f7d28e17f72'],
    ["hash.sha1('abc', 'base64')", 'qZk+NkcGgWq6PiVxeFDCbJzQ2J0='],
    ["hash.crc32('123456789')", 'cbf43926'],
    // The check values of CRC-64/GO-ISO, and of the test vectors of xxHash.
    ["hash.crc64('123456789')", 'b90956c775a41001'],
    ["hash.xxhash64('')", 'ef46db3751d8e999'],
    ["hash.xxhash64('abc')", '44bc2cf5ad770999'],
    ["hash.xxhash64('Nobody inspects the spammish repetition')", 'fbcea83c8a378bf1'],
    ["'abc'.matches('^A') || 'abc'.matches('(?i)^A')", true],
    ["matches('abc', 'b')", true],
    ["'a b c'.split(' ', 1)", ['a']],
    ["'a,b,c'.split(',', 2)", ['a', 'b']],
    ["' a  b '.split()", ['a', 'b']],
    ["'a.b'.split('.')", ['a', 'b']],
    ["'aXbX'.replace('X', '-')", 'a-b-'],
    ["'aXbX'.replace('X', '-', 1)", 'a-bX'],
    ["'Ab'.lower() + 'Ab'.upper() + 'Äb'.lowerAscii()", 'abABÄb'],
    ["'abc'.reverse()", 'cba'],
    ["'abc'.charAt(1) + 'abcd'.substring(1, 3)", 'bbc'],
    ["'abcb'.indexOf('b') + 'abcb'.lastIndexOf('b')", 4],
    ["' x '.trim()", 'x'],
    ["'%s-%d'.format(['a', 1])", 'a-1'],
    ["strings.quote('a\"')", '"a\\""'],
    ["['a', 'b'].join() + ['a', 'b'].join('-')", 'aba-b'],
    ['[1, 2, 3].slice(1, 3)', [2, 3]],
    ['[1, [2, [3]]].flatten()', [1, 2, [3]]],
    ['[1, [2, [3]]].flatten(2)', [1, 2, 3]],
    ['[3, 1, 2].sort()', [1, 2, 3]],
    ["['text/html', 'a; b'].contains('; ') && !['a', 1].contains('b')", true],
    ["[{'n': 2}, {'n': 1}].sortBy(x, x.n).map(x, x.n)", [1, 2]],
    ['[1, 1, 2, 1.0].distinct()', [1, 2]],
    ['lists.range(3)', [0, 1, 2]],
    ['[1, 2].exists(x, x > 1) && [1, 2].all(x, x > 0)', true],
    ['[1, 2, 3].filter(x, x > 1).map(y, y * 2)', [4, 6]],
    ['[1, 2].exists_one(x, x == 2)', true],
    ['[[1, 2], [3]].map(x, x.map(y, y + 1))', [[2, 3], [4]]],
    ["timestamp('2026-03-29T01:30:00Z').getHours('Europe/Berlin')", 3],
    ["timestamp('2026-03-29T02:30:00Z').getHours()", 2],
    ["timestamp('2026-12-31T23:30:00Z').getDate('+01:00')", 1],
    ["timestamp('2026-12-31T23:30:00Z').getDayOfYear()", 364],
    ["timestamp('0001-03-01T00:00:00Z').getDayOfYear()", 59],
    ["timestamp('0050-03-01T12:00:00Z').getFullYear('Asia/Tokyo')", 50],
    ["timestamp('2026-11-22T00:00:00Z').getDayOfWeek()", 0],
    ["timestamp('2026-11-22T00:00:00Z').getDayOfMonth()", 21],
    ["duration('90m').getHours()", 1],
    ["timestamp('2026-01-01T00:00:00Z') + duration('1h')", '2026-01-01T01:00:00Z'],
    ["size('äö') + size([1]) + size({'a': 1})", 4],
    ['string(1) + string(true) + string(1.5) + string(2u)', '1true1.52'],
    ["int('7') + int(2.9)", 9],
    ['9223372036854775807', '9223372036854775807'],
    ["true ? 'a' : 'b' // a comment", 'a'],
    ["type(1) == int && 'a' in ['a'] && 'k' in {'k': 1}", true],
    ["r'\\d' == '\\\\d' && '''it's''' == \"it's\"", true],
  ])('%s', (expression, value) => {
    expect(result(expression)).toEqual(value);
  });

  it('return the same parts of a time in every time zone of the process', () => {
    const zone = process.env.TZ;
    process.env.TZ = 'Europe/Berlin';
    try {
      // At this hour the clocks in Berlin jump from 2 to 3.
      expect(result("timestamp('2026-03-29T02:30:00Z').getHours()")).toBe(2);
    } finally {
      if (zone === undefined) delete process.env.TZ;
      else process.env.TZ = zone;
    }
  });
});

describe('an expression is rejected', () => {
  const refusals: [string, RegExp][] = [
    ['1 +', /not CEL.*1:/],
    ['', /not CEL/],
    ['foo', /unknown variable foo/],
    ['request.method', /unknown variable request/],
    ["constructor == 'x'", /unknown variable constructor/],
    ['nope(1)', /unknown function nope/],
    ["'a'.includes('b')", /use contains/],
    ["'a'.starts_with('b')", /use startsWith/],
    ["req.headers.get('x')", /use req\.headers\['name'\]/],
    ['[1].sort(1, 2, 3)', /sort cannot be called with 3/],
    ["contains('a', 'b')", /method/],
    ['rand.nope()', /unknown function nope/],
    ['@tick()', /not CEL/],
    ['has(req)', /has\(\) needs a member|not CEL/],
    ['[1].map(req, req)', /req is already the name of a variable/],
    ['[1].map(a, [1].map(b, [1].map(c, c)))', /nested more than 2/],
    ['google.protobuf.Duration{seconds: 1}', /unknown type/],
    [`'${'a'.repeat(4100)}'`, /longer than 4096/],
    ["req.url.path.matches('^/(?!public)')", /error parsing regexp/],
    ["matches('a', '(')", /error parsing regexp/],
    ["res.status_code == '503'", /res\.status_code is a number and never equals a text; remove the quotes/],
    ["'a' != req.content_length", /compare it with a number/],
    ["res.status_code in [200, '204']", /never equals a text/],
    ["req.user_agent.is_bot == 'true'", /is a bool and never equals a text; remove the quotes/],
    [`'a'.matches(r'${'\\pL'.repeat(51)}')`, /more than 50 Unicode classes/],
  ];

  it.each(refusals)('%s', (expression, why) => {
    expect(() => compileExpression(expression, DECLARATIONS.on_http_response)).toThrow(why);
  });

  it.each([
    ['on_tcp_connect', "req.method == 'GET'"],
    ['on_tcp_connect', "hasReqHeader('x')"],
    ['on_http_request', 'res.status_code == 200'],
    ['on_http_request', "getResHeader('x')"],
  ] as const)('in %s, for what it reads is not known there: %s', (phase, expression) => {
    expect(() => compileExpression(expression, DECLARATIONS[phase])).toThrow(/not available in this phase/);
  });

  it.each([
    "req.headers['x-absent'][0] == 'a'",
    "'a' + 1",
    '1 / 0 == 1',
    'vars.nothing',
    'req.url.port == 80',
    "'a'.matches(['('][0])",
    "json.decode('{')",
    "conn.tls.client.subject == 'x'",
    '9223372036854775807 + 1',
  ])('at run time: %s', (expression) => {
    expect(() => result(expression)).toThrow(ExpressionError);
  });

  it('at run time, and with the whole policy: an unknown secret, whose name is shown if the expression has it', () => {
    const unknown = (name: string) => () => result(`secrets.get('main', ${name})`);
    expect(unknown("'other'")).toThrow(new PolicyFailure('ERR_NGROK_3900', 'unknown secret: other'));
    expect(unknown("'oth' + 'er'")).toThrow(new PolicyFailure('ERR_NGROK_3900', 'unknown secret: …'));
  });

  it.each([
    [
      'a loop over something dear',
      `lists.range(2000).all(x, lists.range(2000).all(y, ${'x + y >= 0 && '.repeat(110)}true))`,
    ],
    ['a loop in a loop', 'lists.range(2000).all(x, lists.range(2000).all(y, x + y >= 0))'],
    [
      'a pattern compiled in a loop',
      `lists.range(2000).exists(x, 'q'.matches('(?i)${'\\\\pL'.repeat(40)}' + string(x)))`,
    ],
    ['a list built in a loop', 'lists.range(2000).map(x, lists.range(2000).map(y, x * y)).size() > 0'],
  ])('at run time because it exceeds the budget: %s', (_, expression) => {
    const before = process.cpuUsage();
    expect(() => result(expression)).toThrow(PolicyFailure);
    expect(process.cpuUsage(before).user / 1000).toBeLessThan(2000);
  });

  it.each([
    "vars.long.reverse() != 'y'",
    "vars.long.replace('x', 'z') != 'y'",
    "vars.long.lower() != 'y'",
    "vars.long.split('y') != []",
    'size(vars.long) > 0',
    "bytes(vars.long) != b'y'",
    "'ab'.encodeBase64() + vars.long.substring(0, 9000).encodeBase64() != 'y'",
    'req.headers == req.headers',
  ])('at run time because it processes a long string again and again: %s', (condition) => {
    const scope = scopeFor();
    scope.setVariable('long', 'x'.repeat(60_000));
    const loops = `lists.range(1000).all(a, lists.range(1000).all(b, ${condition}))`;
    const before = process.cpuUsage();
    expect(() => result(loops, scope)).toThrow(PolicyFailure);
    expect(process.cpuUsage(before).user / 1000).toBeLessThan(2000);
  });

  it.each([
    ['a search that costs its text times its pattern', "vars.long.matches('(x+x+)+(x+x+){1,90}y')"],
    ['a text that doubles', `${'vars.long + '.repeat(20)}''`],
    ['a list that doubles', 'lists.range(2000) + lists.range(2000)'],
    ['a pattern that explodes', "'a'.matches('((a{100}){100}){100}')"],
    [
      'patterns that are made to explode',
      `lists.range(50).exists(n, 'a'.matches('${'a{1000}'.repeat(140)}' + string(n)))`,
    ],
  ])('at run time because its value would be too large: %s', (_, expression) => {
    const scope = scopeFor();
    scope.setVariable('long', 'x'.repeat(60_000));
    const before = process.cpuUsage();
    expect(() => result(expression, scope)).toThrow();
    expect(process.cpuUsage(before).user / 1000).toBeLessThan(2000);
  });
});

describe('a client certificate', () => {
  let der: Uint8Array;

  beforeAll(async () => {
    await loadCertificateLibrary();
    const keys = await webcrypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-256' }, true, ['sign', 'verify']);
    const certificate = await x509.X509CertificateGenerator.createSelfSigned({
      name: 'C=DE, O=ACME, OU=Devices, CN=cam-1',
      keys,
      serialNumber: '0102',
      notBefore: new Date('2026-01-01T00:00:00Z'),
      notAfter: new Date('2027-01-01T00:00:00Z'),
      signingAlgorithm: { name: 'ECDSA', hash: 'SHA-256' },
      extensions: [
        new x509.SubjectAlternativeNameExtension([
          { type: 'dns', value: 'cam-1.local' },
          { type: 'ip', value: '10.0.0.1' },
        ]),
      ],
    });
    der = new Uint8Array(certificate.rawData);
  });

  it.each<[string, unknown]>([
    ['conn.tls.client.subject', 'CN=cam-1, OU=Devices, O=ACME, C=DE'],
    ['conn.tls.client.subject.common_name', 'cam-1'],
    ['conn.tls.client.subject.organization', ['ACME']],
    ['conn.tls.client.issuer.country[0]', 'DE'],
    ['conn.tls.client.san.dns_names', ['cam-1.local']],
    ['conn.tls.client.san.ip_addresses', ['10.0.0.1']],
    ['conn.tls.client.serial_number', '0102'],
    ['conn.tls.client.signature_algorithm', 'ECDSA SHA-256'],
    ['conn.tls.client.validity.not_after', '2027-01-01T00:00:00Z'],
    ["conn.tls.client.extensions.exists(e, e.id == '2.5.29.17')", true],
    ["conn.tls.client.pem.startsWith('-----BEGIN CERTIFICATE')", true],
    ['conn.tls.version', '1.3'],
  ])('%s', (expression, value) => {
    const tls = {
      sni: 'h',
      version: '1.3',
      cipherSuite: 'x',
      alpn: 'h2',
      ja4: null,
      clientCertificate: der,
      serverCertificate: null,
    };
    const connection = connectionFrom('203.0.113.7', { tls });
    const scope = new SubjectScope(standalonePorts(), connection, ENDPOINT, requestFor({ connection }));
    scope.begin(RESPONSE);
    expect(result(expression, scope)).toEqual(value);
  });
});

describe('a pattern', () => {
  it.each([
    ['[{1000}]{900}', '1'.repeat(900), true],
    ['^\\Q{1000}{1000}\\E{9}$', `{1000}{1000${'}'.repeat(9)}`, true],
    ['^\\p{Greek}{500}\\x{61}{400}$', `${'α'.repeat(500)}${'a'.repeat(400)}`, true],
    ['^(?:ab|cd){50}(?i)x{2,90}(?P<n>[[:alpha:]\\]]{3}){3}$', `${'ab'.repeat(50)}Xxa]ba]ba]b`, true],
    ['^(a{1,30}){9}$', 'a'.repeat(271), false],
  ])('with as many repetitions as allowed is accepted: %s', (pattern, text, matches) => {
    expect(result(`'${text}'.matches(r'${pattern}')`)).toBe(matches);
  });
});
