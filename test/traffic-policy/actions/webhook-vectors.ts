/** A signed webhook as its provider sends it. */
export interface WebhookVector {
  readonly provider: string;
  /** Where the provider publishes it; `made` where its documentation has a scheme only. */
  readonly source: string;
  readonly secret: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** When it was signed. */
  readonly at: string;
  readonly host?: string;
  readonly target?: string;
  /** Whether it becomes too old. */
  readonly isTimed?: true;
  /** Whether the provider signs no part of the body. */
  readonly leavesBodyUnsigned?: true;
}

const SECRET = 'It is a secret';
const BODY = '{"event":"door.opened","id":7}';
const AT = '2026-06-01T00:00:00Z';

// Of BODY with SECRET, the last one of "<AT in seconds>.BODY"; computed with OpenSSL, not with the code under test.
const SHA256 = '89077b930be510d48572b278b5709584147dc62d753d8387043540d02ee65a08';
const SHA256_BASE64 = 'iQd7kwvlENSFcrJ4tXCVhBR9xi11PYOHBDVA0C7mWgg=';
const SHA1 = 'd49210ac46a03a289513495a84428d2f1525a06f';
const TIMED_SHA256 = '42478206ace19160d1f731fd232f5c06bb7f5e6e664451350684c8cdba4030b0';

const TIMED = { isTimed: true } as const;

/** A vector whose signature was computed with OpenSSL's HMAC from the provider's description. */
const made = (
  provider: string,
  headers: WebhookVector['headers'],
  more: Partial<WebhookVector> = {},
): WebhookVector => ({ provider, source: 'made', secret: SECRET, headers, body: BODY, at: AT, ...more });

export const WEBHOOK_VECTORS: readonly WebhookVector[] = [
  made('aftership', { 'aftership-hmac-sha256': SHA256_BASE64 }),
  made(
    'airship',
    {
      'X-UA-TIMESTAMP': '1780272000',
      'X-UA-SIGNATURE': '768b6d9db7980e2edbe340a07dfe4023128cae2968a193bfa33d8ecf58552c7f',
    },
    TIMED,
  ),
  made('alchemy', { 'X-Alchemy-Signature': SHA256 }),
  made('autodesk', { 'x-adsk-signature': `sha1hash=${SHA1}` }),
  {
    provider: 'bitbucket',
    source: 'support.atlassian.com: Manage webhooks, "Test a secret"',
    secret: "It's a Secret to Everybody",
    headers: { 'X-Hub-Signature': 'sha256=a4771c39fbe90f317c7824e83ddef3caae9cb3d976c214ace1f2937e133263c9' },
    body: 'Hello World!',
    at: AT,
  },
  made('bolt', { 'X-Bolt-Hmac-Sha256': SHA256_BASE64 }),
  {
    provider: 'box',
    source: 'box.dev: Signature verification; the keys are in the tests of its SDKs',
    secret: 'SampleSecondaryKey',
    headers: {
      'BOX-DELIVERY-TIMESTAMP': '2020-01-01T00:00:00-07:00',
      'BOX-SIGNATURE-PRIMARY': '6TfeAW3A1PASkgboxxA5yqHNKOwFyMWuEXny/FPD5hI=',
      'BOX-SIGNATURE-SECONDARY': 'v+1CD1Jdo3muIcbpv5lxxgPglOqMfsNHPV899xWYydo=',
    },
    body: '{"type":"webhook_event","webhook":{"id":"1234567890"},"trigger":"FILE.UPLOADED","source":{"id":"1234567890","type":"file","name":"Test.txt"}}',
    at: '2020-01-01T07:09:00Z',
    isTimed: true,
  },
  {
    provider: 'brex',
    source: 'the tests of the Svix SDKs, with the headers of the provider',
    secret: 'MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
    headers: {
      'Webhook-Id': 'msg_p5jXN8AQM9LWM0D4loKWxJek',
      'Webhook-Timestamp': '1614265330',
      'Webhook-Signature': 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
    },
    body: '{"test": 2432232314}',
    at: '2021-02-25T15:02:10Z',
    isTimed: true,
  },
  made('buildkite', { 'X-Buildkite-Signature': `timestamp=1780272000,signature=${TIMED_SHA256}` }, TIMED),
  made('calendly', { 'Calendly-Webhook-Signature': `t=1780272000,v1=${TIMED_SHA256}` }, TIMED),
  {
    provider: 'castle',
    source: 'castle/castle-ruby, spec/lib/castle/webhooks/verify_spec.rb',
    secret: 'secret',
    headers: { 'X-Castle-Signature': '3ptx3rUOBnGEqPjMrbcJn2UUfzwTKP54dFyP5uyPY+Y=' },
    body: '{"api_version":"v1","app_id":"12345","type":"$incident.confirmed","created_at":"2020-12-18T12:55:21.779Z","data":{"id":"test","device_token":"token","user_id":"12345","trigger":"$login.succeeded","context":{},"location":{},"user_agent":{}},"user_traits":{},"properties":{},"policy":{}}',
    at: AT,
  },
  made('chargify', { 'X-Chargify-Webhook-Signature-Hmac-Sha-256': SHA256 }),
  {
    provider: 'circleci',
    source: 'circleci.com/docs: Outbound webhooks',
    secret: 'another-secret',
    headers: { 'circleci-signature': 'v1=daa220016c8f29a8b214fbfc3671aeec2145cfb1e6790184ffb38b6d0425fa00' },
    body: 'lalala',
    at: AT,
  },
  made('clearbit', { 'X-Request-Signature': `sha1=${SHA1}` }),
  {
    provider: 'clerk',
    source: 'the tests of the Svix SDKs, with the headers of the provider',
    secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
    headers: {
      'svix-id': 'msg_p5jXN8AQM9LWM0D4loKWxJek',
      'svix-timestamp': '1614265330',
      'svix-signature': 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
    },
    body: '{"test": 2432232314}',
    at: '2021-02-25T15:02:10Z',
    isTimed: true,
  },
  {
    provider: 'coinbase',
    source: 'coinbase/coinbase-commerce-node, test/testWebhook.spec.js',
    secret: '30291a20-0bd1-4267-9b0f-e6e7b123c0bf',
    headers: { 'X-CC-Webhook-Signature': '8be7742c7d372f08a6a3224edadf18a22b65fa9e28f3f2de97376cdaa092590d' },
    body: '{"id":1,"scheduled_for":"2017-01-31T20:50:02Z","attempt_number":1,"event":{"id":"24934862-d980-46cb-9402-43c81b0cdba6","type":"charge:created","api_version":"2018-03-22","created_at":"2017-01-31T20:49:02Z","data":{"code":"66BEOV2A","name":"The Sovereign Individual","description":"Mastering the Transition to the Information Age","hosted_url":"https://commerce.coinbase.com/charges/66BEOV2A","created_at":"2017-01-31T20:49:02Z","expires_at":"2017-01-31T21:04:02Z","timeline":[{"time":"2017-01-31T20:49:02Z","status":"NEW"}],"metadata":{},"pricing_type":"no_price","payments":[],"addresses":{"bitcoin":"0000000000000000000000000000000000","ethereum":"0x0000000000000000000000000000000000000000","litecoin":"3000000000000000000000000000000000","bitcoincash":"bitcoincash:000000000000000000000000000000000000000000"}}}}',
    at: AT,
  },
  made(
    'contentful',
    {
      'Content-Type': 'application/json',
      'X-Contentful-Signed-Headers': 'content-type,x-contentful-signed-headers,x-contentful-timestamp',
      'X-Contentful-Timestamp': '1780272000000',
      'X-Contentful-Signature': '6a7ee082a42268f35d27f8938c87f5b3a0eaf323e4c3ed673214e8bcd84020fe',
    },
    { target: '/hook?a=1', isTimed: true },
  ),
  made('docusign', {
    'X-DocuSign-Signature-1': 'aHIMl9Rs9iCF1ce6wcu/xtEH9O6Kp/EwnI/AVBXJdgc=',
    'X-DocuSign-Signature-2': SHA256_BASE64,
  }),
  made('dropbox', { 'X-Dropbox-Signature': SHA256 }),
  ...['facebook_graph_api', 'facebook_messenger', 'instagram', 'whatsapp'].map((provider) =>
    made(provider, { 'X-Hub-Signature-256': `sha256=${SHA256}` }),
  ),
  made(
    'frameio',
    {
      'X-Frameio-Request-Timestamp': '1780272000',
      'X-Frameio-Signature': 'v0=c48f143549e6bd7a7b67f24eda7fd1b1cb1bc1151484fd6a42010410cca6d647',
    },
    TIMED,
  ),
  {
    provider: 'github',
    source: 'docs.github.com: Validating webhook deliveries',
    secret: "It's a Secret to Everybody",
    headers: { 'X-Hub-Signature-256': 'sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17' },
    body: 'Hello, World!',
    at: AT,
  },
  made('gitlab', { 'X-Gitlab-Token': SECRET }, { leavesBodyUnsigned: true }),
  made('go1', { 'Go1-Signature': `t=1780272000,v1=${TIMED_SHA256}` }, TIMED),
  made(
    'graphcms',
    { 'gcms-signature': 'sign=AJmvY84K4o2iPAPe0EobRXHA17mbn2x5zjmXiSb/M2k=, env=master, t=1780272000000' },
    TIMED,
  ),
  made('heroku', { 'Heroku-Webhook-Hmac-SHA256': SHA256_BASE64 }),
  made('hostedhooks', { 'Hostedhooks-Signature': `t=1780272000,s=${TIMED_SHA256}` }, TIMED),
  made(
    'hubspot',
    {
      'X-HubSpot-Request-Timestamp': '1780272000000',
      'X-HubSpot-Signature-v3': 'rIAaio5HH6iIGYwzNB2RgBYg72JcM6rXx7IeLZ6Jjig=',
    },
    { target: '/hook?a=x%3Ay%40z', isTimed: true },
  ),
  {
    provider: 'hubspot',
    source: 'legacydocs.hubspot.com: Validating requests, version 1',
    secret: 'yyyyyyyy-yyyy-yyyy-yyyy-yyyyyyyyyyyy',
    headers: {
      'X-HubSpot-Signature-Version': 'v1',
      'X-HubSpot-Signature': '232db2615f3d666fe21a8ec971ac7b5402d33b9a925784df3ca654d05f4817de',
    },
    body: '[{"eventId":1,"subscriptionId":12345,"portalId":62515,"occurredAt":1564113600000,"subscriptionType":"contact.creation","attemptNumber":0,"objectId":123,"changeSource":"CRM","changeFlag":"NEW","appId":54321}]',
    at: AT,
  },
  made('hubspot', {
    'X-HubSpot-Signature-Version': 'v2',
    'X-HubSpot-Signature': '881068f87d4f70a5619308866d35d5a7252537911ca4832c5ce198924287a2ff',
  }),
  made('intercom', { 'X-Hub-Signature': `sha1=${SHA1}` }),
  {
    provider: 'jira',
    source: 'developer.atlassian.com: Webhooks, "Secure admin webhooks"',
    secret: "It's a Secret to Everybody",
    headers: { 'X-Hub-Signature': 'sha256=a4771c39fbe90f317c7824e83ddef3caae9cb3d976c214ace1f2937e133263c9' },
    body: 'Hello World!',
    at: AT,
  },
  made('launch_darkly', { 'X-LD-Signature': SHA256 }),
  made(
    'linear',
    { 'Linear-Signature': '0f93d4de7efc033ad82ae5835e79eff68a72d9c3c7826fc1a230e7e081164f88' },
    { body: '{"action":"create","webhookTimestamp":1780272000000}', isTimed: true },
  ),
  made(
    'mailchimp',
    { 'Content-Type': 'application/x-www-form-urlencoded', 'X-Mandrill-Signature': 'tab71eMSZ7Z8d5+jcV8HHxFQ8Go=' },
    { body: 'mandrill_events=%5B%7B%22event%22%3A%22open%22%7D%5D' },
  ),
  made(
    'mailgun',
    { 'Content-Type': 'application/json' },
    {
      body: '{"signature":{"token":"e0b5477167110d68991efc6b9f89f0a11066af27834600e123","timestamp":"1780272000","signature":"ba2545f4794ffda22cb841f6d110351f9c90641dbd7accdc4d43dc32f004d5ff"},"event-data":{"event":"opened"}}',
      isTimed: true,
      leavesBodyUnsigned: true,
    },
  ),
  made(
    'mailgun',
    { 'Content-Type': 'application/x-www-form-urlencoded' },
    {
      body: 'event=opened&timestamp=1780272000&token=e0b5477167110d68991efc6b9f89f0a11066af27834600e123&signature=ba2545f4794ffda22cb841f6d110351f9c90641dbd7accdc4d43dc32f004d5ff',
      isTimed: true,
      leavesBodyUnsigned: true,
    },
  ),
  made(
    'microsoft_teams',
    { Authorization: 'HMAC UcXR5LFHQ4Y0VKRZv48pIfDwP6KRAyt+kSb+WLHPUrM=' },
    { secret: 'YSB0ZWFtIG9mIHRocmVl' },
  ),
  {
    provider: 'modern_treasury',
    source: 'Modern-Treasury/modern-treasury-node, tests/api-resources/webhooks.test.ts',
    secret: 'foo',
    headers: { 'X-Signature': '57e14f6f354543f0101fb06ea24df7731d90087b76651e3497345e22a3622940' },
    body: '{"foo":"bar"}',
    at: AT,
  },
  made('mongodb', { 'X-MMS-Signature': '1JIQrEagOiiVE0lahEKNLxUloG8=' }),
  {
    provider: 'mux',
    source: 'muxinc/mux-node-sdk, the tests of its webhooks',
    secret: 'SuperSecret123',
    headers: { 'Mux-Signature': 't=1565125718,v1=854ece4c22acef7c66b57d4e504153bc512595e8e9c772ece2a68150548c19a7' },
    body: '{"test":"body"}',
    at: '2019-08-06T21:08:38Z',
    isTimed: true,
  },
  {
    provider: 'orb',
    source: 'orbcorp/orb-node, tests/api-resources/webhooks.test.ts',
    secret: 'c-UGKYdnhHh436B_sMouYAPUvXyWpzOdunZBV5dFSD8',
    headers: {
      'X-Orb-Timestamp': '2024-03-27T15:42:29.551',
      'X-Orb-Signature': 'v1=my-invalid-signature v1=9d25de966891ab0bc18754faf8d83d0980b44ae330fcc130b41a6cf3daf1f391',
    },
    body: '{"id": "o4mmewpfNNTnjfZc", "created_at": "2024-03-27T15:42:29+00:00", "type": "resource_event.test", "properties": {"message": "A test webhook from Orb. Happy testing!"}}',
    at: '2024-03-27T15:42:29Z',
    isTimed: true,
  },
  made('pagerduty', {
    'X-PagerDuty-Signature': `v1=68720c97d46cf62085d5c7bac1cbbfc6d107f4ee8aa7f1309c8fc05415c97607,v1=${SHA256}`,
  }),
  made(
    'pinwheel',
    {
      'x-timestamp': '1780272000',
      'x-pinwheel-signature': 'v2=686af1ce027df0d08cdc8139d80e010d33b07259a55c9c281e1633fa4f36900f',
    },
    TIMED,
  ),
  made(
    'plivo',
    { 'X-Plivo-Signature-V2': '8dQOx7bdNOV/xlEM3/Foq/VfxORe44Cl7TPKFc4mwaY=', 'X-Plivo-Signature-V2-Nonce': '12345' },
    { target: '/hook?a=1', leavesBodyUnsigned: true },
  ),
  made(
    'plivo',
    {
      'Content-Type': 'application/x-www-form-urlencoded',
      'X-Plivo-Signature-V3': 'AAAA,RSRYx2Qh64FC6lUYqF0d+fyU77eldYWOhFShFLYRB6U=',
      'X-Plivo-Signature-V3-Nonce': '12345',
    },
    { body: 'To=%2B2&From=%2B1', target: '/hook?b=2&a=1' },
  ),
  made(
    'plivo',
    {
      'Content-Type': 'application/x-www-form-urlencoded',
      'X-Plivo-Signature-Ma-V3': 'fiR7SmLTLij/clReNDff946w0UYyJqBn6AiMIQ4yPbM=',
      'X-Plivo-Signature-V3-Nonce': '12345',
    },
    { body: 'To=%2B2&From=%2B1' },
  ),
  made('pusher', { 'X-Pusher-Key': 'aaaa', 'X-Pusher-Signature': SHA256 }),
  {
    provider: 'sendgrid',
    source: 'sendgrid/sendgrid-nodejs, packages/eventwebhook/src/eventwebhook.spec.js',
    secret:
      'MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEEDr2LjtURuePQzplybdC+u4CwrqDqBaWjcMMsTbhdbcwHBcepxo7yAQGhHPTnlvFYPAZFceEu/1FwCM/QmGUhA==',
    headers: {
      'X-Twilio-Email-Event-Webhook-Timestamp': '1588788367',
      'X-Twilio-Email-Event-Webhook-Signature':
        'MEUCIQCtIHJeH93Y+qpYeWrySphQgpNGNr/U+UyUlBkU6n7RAwIgJTz2C+8a8xonZGi6BpSzoQsbVRamr2nlxFDWYNH2j/0=',
    },
    body: '{"category":"example_payload","event":"test_event","message_id":"message_id"}',
    at: '2020-05-06T18:06:07Z',
    isTimed: true,
  },
  made('sentry', { 'Sentry-Hook-Signature': SHA256 }),
  made('shopify', { 'X-Shopify-Hmac-SHA256': SHA256_BASE64 }),
  ...['signal_sciences', 'signalsciences'].map((provider) => made(provider, { 'X-SigSci-Signature': SHA256 })),
  {
    provider: 'slack',
    source: 'docs.slack.dev: Verifying requests from Slack',
    secret: '8f742231b10e8888abcd99yyyzzz85a5',
    headers: {
      'X-Slack-Request-Timestamp': '1531420618',
      'X-Slack-Signature': 'v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503',
    },
    body: 'token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c',
    at: '2018-07-12T18:36:58Z',
    isTimed: true,
  },
  ...['sonatype', 'sonatype_nexus'].map((provider) => made(provider, { 'X-Nexus-Webhook-Signature': SHA1 })),
  {
    provider: 'square',
    source: 'square/square-nodejs-sdk, tests/integration/webhooks.test.ts',
    secret: 'Ibxx_5AKakO-3qeNVR61Dw',
    headers: { 'x-square-hmacsha256-signature': 'GF4YkrJgGBDZ9NIYbNXBnMzqb2HoL4RW/S6vkZ9/2N4=' },
    body: '{"merchant_id":"MLEFBHHSJGVHD","type":"webhooks.test_notification","event_id":"ac3ac95b-f97d-458c-a6e6-18981597e05f","created_at":"2022-07-13T20:30:59.037339943Z","data":{"type":"webhooks","id":"bc368e64-01aa-407e-b46e-3231809b1129"}}',
    at: AT,
    host: 'webhook.site',
    target: '/679a4f3a-dcfa-49ee-bac5-9d0edad886b9',
  },
  made('stripe', { 'Stripe-Signature': `t=1780272000,v1=00ff,v1=${TIMED_SHA256},v0=x` }, TIMED),
  {
    provider: 'svix',
    source: 'the tests of the Svix SDKs',
    secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
    headers: {
      'svix-id': 'msg_p5jXN8AQM9LWM0D4loKWxJek',
      'svix-timestamp': '1614265330',
      'svix-signature': 'v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
    },
    body: '{"test": 2432232314}',
    at: '2021-02-25T15:02:10Z',
    isTimed: true,
  },
  made('terraform', {
    'X-TFE-Notification-Signature':
      '051e0a6417140ba4639b14cbf4af30f16a439f8bc8eca7e287c70a0541112f520186b0a0aca8ea07e3df4ac95ee378be4a2602ec530c26fa3daa1e0b4af70daa',
  }),
  made('tiktok', { 'TikTok-Signature': `t=1780272000,s=${TIMED_SHA256}` }, TIMED),
  made('trendmicro_conformity', { 'X-Conformity-Signature': SHA256 }),
  {
    provider: 'twilio',
    source: 'twilio.com/docs: Webhooks security, and the tests of its SDKs',
    secret: '12345',
    headers: {
      'Content-Type': 'application/x-www-form-urlencoded',
      'X-Twilio-Signature': 'RSOYDt4T1cUTdK1PDd93/VVr8B8=',
    },
    body: 'Digits=1234&To=%2B18005551212&From=%2B14158675309&Caller=%2B14158675309&CallSid=CA1234567890ABCDE',
    at: AT,
    host: 'mycompany.com',
    target: '/myapp.php?foo=1&bar=2',
  },
  made('twitter', { 'x-twitter-webhooks-signature': `sha256=${SHA256_BASE64}` }),
  made('typeform', { 'Typeform-Signature': `sha256=${SHA256_BASE64}` }),
  made('webex', { 'X-Spark-Signature': SHA1 }),
  {
    provider: 'worldline',
    source: 'Ingenico-ePayments/connect-sdk-nodejs, the tests of its webhooks',
    secret: 'hello+world',
    headers: { 'X-GCS-KeyId': 'dummy-key-id', 'X-GCS-Signature': '2S7doBj/GnJnacIjSJzr5fxGM5xmfQyFAwxv1I53ZEk=' },
    body: '{\n  "apiVersion": "v1",\n  "id": "8ee793f6-4553-4749-85dc-f2ef095c5ab0",\n  "created": "2017-02-02T11:24:14.040+0100",\n  "merchantId": "20000",\n  "type": "payment.paid",\n  "payment": {\n    "id": "00000200000143570012",\n    "paymentOutput": {\n      "amountOfMoney": {\n        "amount": 1000,\n        "currencyCode": "EUR"\n      },\n      "references": {\n        "paymentReference": "200001681810"\n      },\n      "paymentMethod": "bankTransfer",\n      "bankTransferPaymentMethodSpecificOutput": {\n        "paymentProductId": 11\n      }\n    },\n    "status": "PAID",\n    "statusOutput": {\n      "isCancellable": false,\n      "statusCategory": "COMPLETED",\n      "statusCode": 1000,\n      "statusCodeChangeDateTime": "20170202112414",\n      "isAuthorized": true\n    }\n  }\n}',
    at: AT,
  },
  made('xero', { 'x-xero-signature': SHA256_BASE64 }),
  made(
    'zendesk',
    {
      'X-Zendesk-Webhook-Signature-Timestamp': AT,
      'X-Zendesk-Webhook-Signature': 'K2JIEOlxvr81pRwOr5MFl9dhLciBj9EuwC+HHVlvvH4=',
    },
    TIMED,
  ),
  made(
    'zoom',
    {
      'x-zm-request-timestamp': '1780272000',
      'x-zm-signature': 'v0=c48f143549e6bd7a7b67f24eda7fd1b1cb1bc1151484fd6a42010410cca6d647',
    },
    TIMED,
  ),
];
