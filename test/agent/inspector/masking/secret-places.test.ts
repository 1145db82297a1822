import { describe, expect, it } from 'vitest';
import { bodyContent } from '../../../../src/agent/inspector/body-content.ts';
import { maskTarget, maskText } from '../../../../src/agent/inspector/masking/mask-text.ts';
import { maskHeaders, shownBytes } from '../../../../src/agent/inspector/shown-exchange.ts';
import { isSecretMember } from '../../../../src/lib/masking/secret-names.ts';

/** What must not be shown; has the form of no secret. */
const S = 'zq7-marked-91';
const json = (name: string) => JSON.stringify({ user: 'jo', [name]: S, n: 1 });
const base64 = (text: string) => Buffer.from(text).toString('base64');
const base64url = (text: string) => Buffer.from(text).toString('base64url');
const percent = encodeURIComponent;

const NAMES =
  `password passwd pwd passphrase secret client_secret api_key apiKey access_token refreshToken authorization private_key
  card_number cardNumber credit_card ccNumber cvv cvv2 cvc card_cvc securityCode ssn SSN social_security_number iban
  bank_account_number routing_number passport_number tax_id drivers_license national_id otp totp sms_otp mfa_code
  verification_code recovery_codes backup_codes device_code pin db_pw passwort set_cookie connection_string mnemonic`.split(
    /\s+/,
  );

/** Texts with a secret, by the place where it is. */
const PLACES: Record<string, (name: string) => [contentType: string | null, text: string]> = {
  JSON: (name) => ['application/json', json(name)],
  'pretty JSON': (name) => ['application/json', JSON.stringify(JSON.parse(json(name)), null, 2)],
  'JSON, cut': (name) => ['application/json', json(name).slice(0, json(name).indexOf(S) + S.length)],
  'problem JSON': (name) => ['application/problem+json', `[[${json(name)}]]`],
  'lines of JSON': (name) => ['application/x-ndjson', `{"a":1}\n${json(name)}\n`],
  'JSON in JSON': (name) => ['application/json', JSON.stringify({ body: json(name) })],
  'JSON in JSON, cut': (name) => ['application/json', JSON.stringify({ body: json(name) }).slice(0, -12)],
  'JSON in JSON in JSON': (name) => ['application/json', JSON.stringify([JSON.stringify([json(name)])])],
  'a form in JSON': (name) => ['application/json', JSON.stringify({ body: `a=b&${name}=${S}` })],
  'the first field of a form in JSON': (name) => ['application/json', JSON.stringify({ body: `${name}=${S}&a=b` })],
  'base64 of JSON in JSON': (name) => ['application/json', JSON.stringify({ data: base64(json(name)) })],
  'name and value': (name) => ['application/json', JSON.stringify({ fields: [{ name, value: S }] })],
  'value and key': (name) => ['application/json', JSON.stringify([{ value: S, type: 'text', key: name }])],
  'variables of GraphQL': (name) => [
    'application/json',
    JSON.stringify({ query: 'mutation($p: String!) { a(b: $p) }', variables: { [name]: S } }),
  ],
  'arguments of GraphQL in JSON': (name) => [
    'application/json',
    JSON.stringify({ query: `mutation { a(x: 1, ${name}: "${S}") }` }),
  ],
  'arguments of GraphQL': (name) => ['application/graphql', `mutation { a(${name}: "${S}", b: 2) { id } }`],
  'a form': (name) => ['application/x-www-form-urlencoded', `user=jo&${percent(name)}=${S}&b=1`],
  'a form of objects': (name) => ['application/x-www-form-urlencoded', `user%5B${name}%5D=${S}`],
  'JSON in a form': (name) => ['application/x-www-form-urlencoded', `payload=${percent(json(name))}`],
  'JSON in a multipart form': (name) => [
    'multipart/form-data; boundary=x',
    `--x\r\nContent-Disposition: form-data; name="a"\r\nContent-Type: application/json\r\n\r\n${json(name)}\r\n--x--`,
  ],
  'a multipart form': (name) => [
    'multipart/form-data; boundary=x',
    `--x\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${S}\r\n--x--`,
  ],
  'an element': (name) => ['application/xml', `<a><user>jo</user><${name} type="x">${S}</${name}></a>`],
  'an element with a prefix': (name) => ['text/xml', `<s:Body><w:${name}><![CDATA[${S}]]></w:${name}></s:Body>`],
  'an element, cut': (name) => ['application/soap+xml', `<a><${name}>${S}`],
  'an attribute': (name) => ['application/xml', `<login user="jo" ${name}="${S}"/>`],
  'an attribute with a name': (name) => [
    'application/xml',
    `<add key="${name}" value='${S}'/><p name="${name}">${S}</p>`,
  ],
  'a field of a page': (name) => ['text/html', `<input type=hidden name="${name}" value="${S}"><p>${name}</p>`],
  'a script of a page': (name) => ['text/html', `<script>start({ ${name}: '${S}', a: 1 })</script>`],
  YAML: (name) => ['application/yaml', `user: jo\ndb:\n  - ${name}: ${S}\n`],
  settings: (name) => ['text/plain', `USER=jo\n${name.toUpperCase()}=${S}\n`],
  'settings with quotes': (name) => ['text/plain', `export ${name}="${S} ${S}"\n[a]\n${name} = '${S}'`],
  'lines of a log': (name) => ['text/plain', `2026 login user=jo ${name}=${S} ok`],
  'a printed dictionary': (name) => ['text/plain', `got {'user': 'jo', '${name}': '${S}'}`],
  'a message': (name) => [null, json(name)],
  'a frame of Socket.IO': (name) => [null, `42["login",${json(name)}]`],
  'a frame of STOMP': (name) => [null, `CONNECT\nlogin:jo\n${name}:${S}\n\n\0`],
  'JSON-RPC': (name) => [
    null,
    JSON.stringify({ jsonrpc: '2.0', method: 'login', params: JSON.stringify({ [name]: S }) }),
  ],
  events: (name) => ['text/event-stream', `event: a\ndata: ${json(name)}\n\n`],
  'lines of an event': (name) => ['text/event-stream', `data: {"${name}":\ndata: "${S}"}\n\n`],
  'JSON in JSON of an event': (name) => ['text/event-stream', `data: ${JSON.stringify({ d: json(name) })}\n\n`],
  'a URL in JSON': (name) => ['application/json', JSON.stringify({ url: `https://a.example/?${name}=${S}&b=1` })],
  'a URL in a URL': (name) => ['text/plain', `https://a.example/?to=${percent(`https://b.example/?${name}=${S}`)}`],
};

describe.each(NAMES)('the value of %s is masked', (name) => {
  it.each(Object.keys(PLACES))('in %s', (place) => {
    const [type, text] = PLACES[place]?.(name) ?? [null, ''];
    expect(text).toContain(place.includes('base64') ? 'ey' : S);
    const masked = maskText(text, type);
    expect(masked).not.toContain(S);
    expect(masked).not.toContain(base64(S).slice(2, 12));
  });

  it('in targets and headers', () => {
    const targets = [
      `/a?x=1&${name}=${S}`,
      `/a?filter=${percent(json(name))}`,
      `/a?to=${percent(`https://b.example/x?${name}=${S}&y=1`)}`,
      `/a?state=${base64url(json(name))}`,
      `/a#${name}=${S}`,
    ];
    for (const target of targets)
      expect(maskTarget(target)).not.toMatch(new RegExp(`${S}|${base64url(S).slice(2, 12)}`));
    const headers = [
      [`X-${name.replaceAll('_', '-')}`, name === 'pin' ? '[masked]' : S],
      ['X-Data', json(name)],
      ['X-Data', base64(json(name))],
      ['X-Data', percent(json(name))],
      ['X-Data', `a=1; ${name}=${S}`],
      ['X-Original-Url', `/a?${name}=${S}`],
    ].map(([header = '', value = '']) => ({ name: header, value }));
    const shown = JSON.stringify(maskHeaders(headers));
    expect(shown).not.toContain(S);
    expect(shown).not.toContain(base64(S).slice(2, 12));
  });
});

const JWT = `${base64url('{"alg":"HS256","typ":"JWT"}')}.${base64url('{"sub":"1"}')}.${base64url('a signature of it')}`;

it.each([
  ['a signed token', JWT],
  ['a token of a service', `ghp_${'a1'.repeat(18)}`],
  ['another one', `sk_live_${'a1'.repeat(12)}`],
  ['a key of a cloud', `AKIA${'A1'.repeat(8)}`],
  ['a private key', `-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE/+a=\n-----END EC PRIVATE KEY-----`],
  ['a card in groups', '4111 1111 1111 1111'],
  ['credentials behind their scheme', `Bearer ${S}`],
])('%s is masked wherever it is', (_, secret) => {
  const texts = [
    maskText(JSON.stringify({ note: `see ${secret} there` }), 'application/json'),
    maskText(`<p>see ${secret} there</p>`, 'text/html'),
    maskText(`see ${secret} there`, null),
    maskTarget(`/a/${secret}/b?c=${percent(secret)}`),
    maskHeaders([{ name: 'X-Note', value: `see ${secret.replaceAll('\n', ' ')}` }])[0]?.value,
  ];
  for (const text of texts) expect(text).not.toContain(secret.slice(8, -8));
});

it('tokens that browsers send as protocols of WebSocket are masked', () => {
  const shown = (value: string) => maskHeaders([{ name: 'Sec-WebSocket-Protocol', value }])[0]?.value;
  expect(shown(`graphql-transport-ws, access_token, ${S}`)).toBe('graphql-transport-ws, access_token, [masked]');
  expect(shown(`bearer, ${S}`)).toBe('bearer, [masked]');
  expect(shown(`base64url.bearer.authorization.k8s.io.${base64url(S)}, v4.channel.k8s.io`)).toBe(
    '[masked], v4.channel.k8s.io',
  );
  expect(shown('mqtt, graphql-ws')).toBe('mqtt, graphql-ws');
});

/** A body, as it is shown. */
async function shownBody(bytes: Buffer, type: string | null, reveal = false) {
  const body = { bytes, length: bytes.length } as never;
  const fields = type === null ? [] : [{ name: 'content-type', value: type }];
  return bodyContent({ body, isTruncated: false } as never, fields, reveal);
}

describe('what is binary', () => {
  /** A message of Protocol Buffers, with a string as field 2. */
  const protobuf = Buffer.concat([Buffer.of(8, 1, 0x12, S.length), Buffer.from(S)]);
  const grpc = Buffer.concat([Buffer.of(0, 0, 0, 0, protobuf.length), protobuf]);
  const msgpack = Buffer.concat([
    Buffer.of(0x81, 0xa8),
    Buffer.from('password'),
    Buffer.of(0xa0 + S.length),
    Buffer.from(S),
  ]);
  it.each<[string, Buffer, string | null]>([
    ['Protocol Buffers', protobuf, 'application/x-protobuf'],
    ['Protocol Buffers without a type', protobuf, null],
    ['a string of Protocol Buffers', Buffer.from(`\n\r${S}`), 'application/vnd.google.protobuf'],
    ['gRPC', grpc, 'application/grpc'],
    ['gRPC in base64', Buffer.from(grpc.toString('base64')), 'application/grpc-web-text+proto'],
    ['MessagePack', msgpack, 'application/msgpack'],
    ['bytes', msgpack, 'application/octet-stream'],
    [
      'a form with a file',
      Buffer.concat([
        Buffer.from(`--x\r\nContent-Disposition: form-data; name="password"\r\n\r\n${S}\r\n--x\r\n\r\n`),
        Buffer.of(0, 255),
        Buffer.from('\r\n--x--'),
      ]),
      'multipart/form-data; boundary=x',
    ],
  ])('is masked as a whole: %s', async (_, bytes, type) => {
    expect(await shownBody(bytes, type)).toMatchObject({ text: '[masked]', masked: true });
    expect((await shownBody(bytes, type, true))?.bytes).toEqual(bytes);
  });

  it('is masked by its names where it is text: JSON in UTF-16, and JSON as bytes', async () => {
    for (const bytes of [
      Buffer.from(`\ufeff${json('password')}`, 'utf16le'),
      Buffer.from(json('password'), 'utf16le'),
    ]) {
      const shown = await shownBody(bytes, 'application/json');
      expect(shown?.text).toContain('"user":"jo","password":"[masked]"');
    }
    expect((await shownBody(Buffer.from(json('ssn')), 'application/octet-stream'))?.text).toContain(
      '"user":"jo","ssn":"[masked]"',
    );
  });

  it.each(['image/png', 'audio/mpeg', 'video/mp4', 'font/woff2', 'application/pdf'])(
    'stays when it is %s',
    async (type) => {
      const bytes = Buffer.of(0x89, 0x50, 0, 255, 1);
      expect(await shownBody(bytes, type)).toMatchObject({ bytes, text: null, masked: false });
    },
  );

  it('messages of WebSocket are masked, and reasons of their ends', () => {
    const shown = (type: string, data: Buffer, reveal = false) =>
      shownBytes({ type, data } as Parameters<typeof shownBytes>[0], reveal).toString('latin1');
    expect(shown('binary', msgpack)).toBe('[masked]');
    expect(shown('binary', Buffer.from(json('cvv')))).toContain('"user":"jo","cvv":"[masked]"');
    expect(shown('binary', msgpack, true)).toBe(msgpack.toString('latin1'));
    expect(shown('close', Buffer.from(`\x03\xe8token=${S}`, 'latin1'))).toBe('\x03\xe8token=[masked]');
    expect(shown('close', Buffer.of(3, 232))).toBe('\x03\xe8');
  });
});

describe('what is ordinary stays', () => {
  it.each(
    `card_type cardholder cardinality discard author authors passenger compass classname session status state key keyboard
    monkey tokenizer token_type expires_in secretary pinned pinCode shipping_pin account_id tax_rate taxi license bypass
    password_changed_at code country_code zip_code error_code number phone_number order_number issuer tanning panel sidebar`.split(
      /\s+/,
    ),
  )('%s', (name) => {
    expect(isSecretMember(name)).toBe(false);
    for (const place of Object.values(PLACES)) {
      const [type, text] = place(name);
      // As parameters of a URL, these are those of sign-ins.
      if (/[?&](?:code|key|session)=/.test(decodeURIComponent(text))) continue;
      expect(maskText(text, type)).toBe(text);
    }
  });

  it.each<[string | null, string]>([
    ['application/json', '{"password": null, "has_secret": true, "token": "", "otp": false}'],
    ['application/json', '{"usage":{"prompt_tokens":12,"completion_tokens":5,"total_tokens": 17},"max_tokens":100}'],
    ['application/json', '{"text":"Enter your password: it must be long. Forgot your password?","html":"<b>a=b</b>"}'],
    [
      'application/json',
      '{"id":4111111111111111,"order":"1234 5678 9012 3456","phone":"555-12-3456","time":1764352800000}',
    ],
    ['application/json', '{"data":"eyJhIjoxLCJiIjoidHdvIn0=","avatar":"iVBORw0KGgoAAAANSUhEUgAA"}'],
    [
      'text/html',
      '<label for="password">Password:</label><input type="password" name="password" value=""><p>Token: see below</p>',
    ],
    ['text/html', '<script>if (token == null) login({ password: form.password.value, token })</script>'],
    ['text/javascript', 'const token=get("a");class A{password=this.b;secret(){return token}}'],
    ['text/css', '.password:focus{color:red} #token::after{content:"x"}'],
    ['text/plain', 'Your password: please choose one. The secret: there is none. Basic authentication is required.'],
    ['application/xml', '<a><passwords/><token></token><author name="jo">Jo</author></a>'],
    ['application/yaml', 'password:\nsecrets: []\ntoken: null\nkeys:\n  - a: 1\n'],
    [null, '2["typing",{"room":"a:b","at":"12:30"}]'],
  ])('%s %s', (type, text) => {
    expect(maskText(text, type)).toBe(text);
  });

  it('headers and targets', () => {
    const headers = Object.entries({
      'Content-Type': 'multipart/form-data; boundary=a1',
      'Content-Disposition': 'form-data; name="password"; filename="a.txt"',
      'WWW-Authenticate': 'Bearer realm="api", error="invalid_token"',
      'User-Agent': 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36',
      'If-None-Match': 'W/"33a64df551425fcc55e4d42a148795d9f25f89d4"',
      'Content-Security-Policy': "default-src 'self'; script-src 'nonce-abc123'",
      'Strict-Transport-Security': 'max-age=31536000; includeSubDomains',
      'Accept-Language': 'en-US,en;q=0.9',
      'X-Request-Id': 'b2f1c6e0-1d7e-4a39-9f0c-0a1b2c3d4e5f',
      Date: 'Sat, 28 Nov 2026 18:00:00 GMT',
    }).map(([name, value]) => ({ name, value }));
    expect(maskHeaders(headers)).toEqual(headers);
    for (const target of [
      '/a?page=2&sort=name',
      '/token/refresh?x=%7B%22a%22%3A1%7D',
      '/a?to=https%3A%2F%2Fb%2F%3Fq%3D1',
    ]) {
      expect(maskTarget(target)).toBe(target);
    }
  });
});
