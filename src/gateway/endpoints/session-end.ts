import { ProtocolViolation } from '../../agent-protocol/frames.ts';

/**
 * Why sessions of agents end: their agent said goodbye; its connection closed without a word; it answered nothing; it has connected again;
 * this gateway stopped, was emptied, or told it to connect again; its authtoken or address is no longer allowed; a limit; it broke
 * the protocol, or accepted no connections. `refused` ones have not begun.
 */
const SESSION_ENDS = [
  'stopped',
  'lost',
  'silent',
  'replaced',
  'gateway',
  'revoked',
  'limit',
  'faulty',
  'refused',
] as const;
export type SessionEnd = (typeof SESSION_ENDS)[number];

/** Ends a session for a reason that is counted. */
export class EndOfSession extends Error {
  constructor(
    readonly end: SessionEnd,
    message: string,
  ) {
    super(message);
    this.name = 'EndOfSession';
  }
}

/** @param reason that the last connection of a session has ended for */
export function sessionEndOf(reason: Error): SessionEnd {
  if (reason instanceof EndOfSession) return reason.end;
  return reason instanceof ProtocolViolation ? 'faulty' : 'lost';
}
