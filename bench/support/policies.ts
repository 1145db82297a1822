/** Like the agent's default policies: one or two headers on every response. */
export const DEFAULT_POLICY = JSON.stringify({
  inbound: [],
  outbound: [
    {
      name: 'Security headers',
      actions: [
        {
          type: 'add-headers',
          config: { headers: { 'x-content-type-options': 'nosniff', 'x-served-by': 'device-agent' } },
        },
      ],
    },
  ],
});

/** Typical protection of a device; no rule matches the measured requests. */
export const EXPRESSIONS = [
  "req.url.path.startsWith('/admin')",
  "'x-debug' in req.headers && req.headers['x-debug'][0] == '1'",
  "req.method in ['TRACE', 'CONNECT']",
  "inCidrRange(conn.client_ip, '10.0.0.0/8')",
  "req.host == 'evil.example.com'",
  "req.url.path.matches('(?i)\\\\.(php|asp|cgi)$')",
  'size(req.url.query) > 500',
  "hasReqHeader('x-forwarded-host') && getReqHeader('x-forwarded-host')[0] == 'evil'",
  "req.user_agent.contains('sqlmap')",
  'has(req.content_length) && req.content_length > 1000000',
];

export const TEN_RULES = JSON.stringify({
  on_http_request: EXPRESSIONS.map((expression) => ({ expressions: [expression], actions: [{ type: 'deny' }] })),
});

/** Access control without state. */
export const BASIC_AUTH = JSON.stringify({
  on_http_request: [{ actions: [{ type: 'basic-auth', config: { credentials: ['jo:correct horse'] } }] }],
});
