/** Start of the body with which an agent answers 502 itself when it cannot reach the upstream. */
export const DIAL_FAILURE_TEXT = 'failed to dial backend';
/** Before what clients may read of it. The SDK (1.7.0) goes on with a colon, and what it says is for operators only. */
const SUMMARY = `${DIAL_FAILURE_TEXT}; the upstream `;
const SUMMARY_TEXT = /^[\w .,-]{1,100}$/;

/**
 * The response of an agent that cannot reach the upstream of an http endpoint.
 *
 * @param summary what clients may read: completes "its upstream …"; null: nothing
 */
export function dialFailure(summary: string | null): string {
  const body = summary === null ? DIAL_FAILURE_TEXT : SUMMARY + summary;
  const length = Buffer.byteLength(body);
  return `HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\ncontent-length: ${length}\r\n\r\n${body}`;
}

/** What clients may read of such a response, or of its body; null: nothing. */
export function dialSummary(response: Buffer): string | null {
  const at = response.indexOf(SUMMARY);
  const text = at === -1 ? '' : response.toString('utf8', at + SUMMARY.length);
  return SUMMARY_TEXT.test(text) ? text : null;
}
