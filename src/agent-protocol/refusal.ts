/** A request of an agent that is answered with an error on purpose; anything else that is thrown is a bug. */
export class Refusal extends Error {
  /** @param code stable code that SDKs hand on to their callers, `ERR_NGROK_…` */
  constructor(
    readonly code: string,
    message: string,
    options: ErrorOptions = {},
  ) {
    super(message, options);
    this.name = 'Refusal';
  }
}

/** What an agent sent, short enough for the message of its refusal. */
export function quote(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);
}

/** The form in which the SDKs find the code: alone on the last line. */
export function refusalText(refusal: Refusal): string {
  return `${refusal.message}\n\n${refusal.code}`;
}
