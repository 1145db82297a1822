import { z } from 'zod';
import { apiHost } from '../../gateway/endpoints/domain-names.ts';
import { dashboardCode, readStore } from '../../gateway/offline/command-store.ts';
import { messageOf } from '../../lib/errors.ts';
import { fetchHere } from '../../management/fetch-here.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { failed, NotKnown, ok, type Result } from '../finding.ts';

const ASK_MS = 4_000;
const Answer = z.object({
  conditions: z.array(z.object({ id: z.string(), message: z.string(), remedy: z.string() })),
});

/** Of which other checks find more, also without a running gateway; devices that are offline are no fault of the gateway. */
const CHECKED_APART = ['own_certificate', 'domain_certificate', 'event_destination', 'device_offline'];

/** What the gateway that runs on this machine says is wrong. It is asked without a change: its disk may be full. */
export async function conditionResults(
  settings: GatewayServerSettings,
  caPem: string | null,
  patience: number,
): Promise<Result | Result[]> {
  const { httpsPort, domain, databaseUrl, nodeAddress } = settings;
  const fetch = fetchHere(settings, caPem ?? '');
  const answer = await fetch(`https://${apiHost(domain.toLowerCase())}:${httpsPort}/dashboard/conditions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ code: readStore(settings, (store) => dashboardCode(store, Date.now())) }),
    redirect: 'manual',
    signal: AbortSignal.timeout(ASK_MS * patience),
  }).catch((error: unknown) => {
    return failed(`its management API does not answer: ${messageOf(error)}`, "see the gateway's log; restart it");
  });
  if ('advice' in answer) return answer;
  const parsed = answer.status === 200 ? Answer.safeParse(JSON.parse(await answer.text())) : null;
  if (!parsed?.success) throw new NotKnown(`the running gateway does not say (${answer.status}): restart it`);
  const present = parsed.data.conditions.filter(({ id }) => !CHECKED_APART.includes(id));
  const ownName = nodeAddress ?? 'this gateway';
  if (present.length === 0) {
    const others = databaseUrl === null ? '' : `; ${ownName} alone was asked`;
    return ok(`the running gateway reports no problem${others}`);
  }
  const whose = databaseUrl === null ? '' : `${ownName}: `;
  return present.map(({ message, remedy }) => failed(whose + message, remedy));
}
