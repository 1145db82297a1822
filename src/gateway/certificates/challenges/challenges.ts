import type { HttpChallenges } from './challenge-http.ts';
import type { TlsAlpnChallenges } from './challenge-tls-alpn.ts';
import type { TxtChallenges } from './challenge-txt.ts';

/** Where the answers to challenges are published. */
export interface Challenges {
  http: HttpChallenges;
  tlsAlpn: TlsAlpnChallenges;
  txt: TxtChallenges;
}
