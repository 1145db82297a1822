let text = '';
let until = 0;

/** The current time for a Date header (RFC 9110, 5.6.7); cached for a second. */
export function httpDate(): string {
  const now = Date.now();
  if (now >= until || now < until - 1000) {
    text = new Date(now).toUTCString();
    until = now - (now % 1000) + 1000;
  }
  return text;
}
