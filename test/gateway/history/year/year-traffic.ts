/** An endpoint by its number, how many requests it gets, and how they end: a place in {@link OUTCOMES}. */
export type Burst = readonly [endpoint: number, requests: number, outcome: number];

export const OUTCOMES = ['successful', 'not found', 'failed', 'refused'] as const;
export const FAILED = OUTCOMES.indexOf('failed');
export const REFUSED = OUTCOMES.indexOf('refused');

/** What is counted of each request. */
export const REQUEST_BYTES = 431;
export const RESPONSE_BYTES = 12_345;

/** Of a step of the history, what is compared. */
export type Sums = readonly [
  requests: number,
  failed: number,
  refused: number,
  received: number,
  known: number,
  online: number,
];

export const hostOf = (endpoint: number) => `cam-${endpoint}.site-${endpoint % 40}.example.com`;
export const urlOf = (endpoint: number) => `https://${hostOf(endpoint)}`;
export const deviceOf = (endpoint: number) => `dev_${endpoint}`;
