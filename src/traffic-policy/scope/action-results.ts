const ERROR = ['error', 'error.code', 'error.message'];

/** Members of the results that actions record, below `actions.ngrok.<action>.`. Those of terminate-tls are variables. */
const RESULTS: Readonly<Record<string, readonly string[]>> = {
  add_headers: ['headers_added'],
  basic_auth: ['credentials', 'credentials.presented', 'credentials.username', 'credentials.authorized'],
  compress: ['already_compressed', 'negotiated_algorithm'],
  forward_internal: ['url', ...ERROR],
  jwt_validation: ['tokens', ...ERROR],
  log: ['metadata'],
  rate_limit: ['limited', 'bucket_key', ...ERROR],
  redirect: ['matches', 'url', ...ERROR],
  remove_headers: ['headers_removed'],
  restrict_ips: ['action', 'matched_cidr', ...ERROR],
  url_rewrite: ['matches', 'url', ...ERROR],
  verify_webhook: ['verified', ...ERROR],
};

/** Names in the results of actions, from `actions.ngrok` downwards. */
export const RESULT_NAMES: readonly string[] = [
  'actions.ngrok',
  ...Object.entries(RESULTS).flatMap(([action, members]) => [
    `actions.ngrok.${action}`,
    ...members.map((member) => `actions.ngrok.${action}.${member}`),
  ]),
];

/** Results whose members depend on the policy. */
export const OPEN_RESULTS: readonly string[] = [
  'actions.ngrok.add_headers.headers_added',
  'actions.ngrok.log.metadata',
];
