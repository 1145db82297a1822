import { parseRetryAfter } from '../../lib/http/retry-after.ts';
import { shortText } from '../../lib/short-text.ts';
import { printable } from '../../lib/terminal-text.ts';
import { namedValues, type publicRequest } from '../../traffic-policy/public-request.ts';
import { NotAccepted } from './event-sink.ts';

/** What is posted for an event. */
export interface EventPost {
  readonly url: string;
  readonly body: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** Of the body of a response. */
const MAX_RESPONSE = 64 * 1024;
/** Characters of it that people see. */
const MAX_SHOWN = 200;
/** Statuses from 400 to 499 that ask for another try: of the same event, or by somebody who is not so fast. */
const NO_REFUSALS: ReadonlySet<number> = new Set([408, 421, 425, 429]);

/** Statuses by which chat programs say that a token, webhook or channel is no longer valid: no other event would be taken, either. */
const ABOUT_DESTINATION: ReadonlySet<number> = new Set([401, 403, 404, 410]);

/**
 * Posts JSON.
 * @param isChat whether it is a known program: what it answers may be shown, and some statuses are about the destination
 * @returns the answer in words
 * @throws {NotAccepted} for a status that is no success
 */
export async function postEvent(
  { url, body, headers }: EventPost,
  request: typeof publicRequest,
  signal: AbortSignal,
  isChat: boolean,
): Promise<string> {
  const all = { 'content-type': 'application/json', 'user-agent': 'device-agent-gateway', ...headers };
  const response = await request(
    {
      ...{ method: 'POST', url: new URL(url), headers: Object.entries(all).flat() },
      ...{ body: Buffer.from(body), maxBytes: MAX_RESPONSE, statusSuffices: true },
    },
    signal,
  );
  const { status } = response;
  const said = isChat ? shortText(printable(response.body.toString('utf8').trim()), MAX_SHOWN) : '';
  const answer = `the server responded with status ${status}${said === '' ? '' : `: ${said}`}`;
  if (status >= 200 && status <= 299) return answer;
  const isRefusal =
    status >= 400 && status <= 499 && !NO_REFUSALS.has(status) && !(isChat && ABOUT_DESTINATION.has(status));
  const { 'retry-after': [retryAfter] = [], date: [date] = [] } = namedValues(response.headers);
  throw new NotAccepted(answer, isRefusal, parseRetryAfter(retryAfter, date));
}
