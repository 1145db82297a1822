/** Policies to begin with. */
export const POLICY_EXAMPLES: readonly { name: string; policy: object }[] = [
  {
    name: 'Password',
    policy: {
      on_http_request: [
        { actions: [{ type: 'basic-auth', config: { credentials: ['user:choose-a-long-password'] } }] },
      ],
    },
  },
  {
    name: 'Allowed addresses',
    policy: {
      on_http_request: [{ actions: [{ type: 'restrict-ips', config: { allow: ['203.0.113.0/24'] } }] }],
    },
  },
  {
    name: 'Rate limit',
    policy: {
      on_http_request: [
        {
          actions: [
            {
              type: 'rate-limit',
              config: {
                name: 'per client',
                algorithm: 'sliding_window',
                capacity: 60,
                rate: '1m',
                bucket_key: ['conn.client_ip'],
              },
            },
          ],
        },
      ],
    },
  },
  {
    name: 'Response header',
    policy: {
      on_http_response: [{ actions: [{ type: 'add-headers', config: { headers: { 'x-served-by': 'my device' } } }] }],
    },
  },
];
