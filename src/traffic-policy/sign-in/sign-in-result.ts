import { hash } from 'node:crypto';
import { NO_ERROR } from '../actions/restrict-ips.ts';
import { endOf, type Session, type SessionTimes } from './session.ts';

/** What happened to a session with a request; null: it was used. */
export type SessionEvent = 'renewed' | 'ended' | null;

/** What expressions read as `actions.ngrok.oidc` or `actions.ngrok.oauth`; its texts are empty without a session. */
export function resultOf(
  session: Session | null,
  event: SessionEvent,
  now: number,
  { place, times }: { readonly place: { readonly issuer: string }; readonly times: SessionTimes },
): object {
  const hasEnded = session !== null && event === 'ended';
  // Rules on the response must not take somebody for signed in.
  const current = hasEnded ? null : session;
  const { subject = '', email = '', name = '', id = '', tokens } = current ?? {};
  return {
    error: NO_ERROR,
    identity: {
      id: current === null ? '' : `idn_${hash('sha256', JSON.stringify([place.issuer, subject])).slice(0, 27)}`,
      email,
      name,
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
