import { hash } from 'node:crypto';
import { NO_ERROR } from '../actions/restrict-ips.ts';
import { endOf, type Session, type SessionTimes } from './session.ts';

/** What happened to a session with a request; null: it was used. */
export type SessionEvent = 'renewed' | 'ended' | null;

/** Where results are recorded, below `actions.ngrok`. */
export type SignInResult = 'oidc' | 'oauth' | 'gateway_sign_in';

interface ResultOptions {
  readonly result: SignInResult;
  readonly place: { readonly issuer: string };
  readonly times: SessionTimes;
}

/** What expressions read below `actions.ngrok`; its texts and lists are empty without a session. */
export function resultOf(
  session: Session | null,
  event: SessionEvent,
  now: number,
  { result, place, times }: ResultOptions,
): object {
  const hasEnded = session !== null && event === 'ended';
  // Rules on the response must not take somebody for signed in.
  const current = hasEnded ? null : session;
  const { subject = '', email = '', name = '', id = '', groups = [], tokens } = current ?? {};
  return {
    error: NO_ERROR,
    identity: {
      id: current === null ? '' : `idn_${hash('sha256', JSON.stringify([place.issuer, subject])).slice(0, 27)}`,
      email,
      name,
      ...(result === 'gateway_sign_in' && { groups }),
      provider_user_id: subject,
      current_session_id: id,
      current_provider_session_id: id,
    },
    identity_token: tokens?.identity ?? '',
    access_token: tokens?.access ?? '',
    refresh_token: tokens?.refresh ?? '',
    expires_at: current === null ? '' : new Date(endOf(current, times)).toISOString(),
    session_timed_out: hasEnded && now >= session.usedAt + times.idleMs,
    session_max_duration_reached: hasEnded && now >= session.signedInAt + times.maxMs,
    userinfo_refreshed: event === 'renewed',
  };
}
