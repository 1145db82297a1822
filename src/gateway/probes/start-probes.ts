import type { GatewayContext } from '../context/gateway-context.ts';
import { apiHost } from '../endpoints/domain-names.ts';
import type { LiveView } from '../endpoints/live-view.ts';
import type { ProbeTokens } from '../endpoints/probe-outcome.ts';
import { PublicProbe } from './public-probe.ts';
import { PublicProbes } from './public-probes.ts';

/** Asks chosen endpoints as clients do, from now on, until the gateway stops. */
export function startProbes(
  context: GatewayContext,
  { live, tokens, trusted }: { live: LiveView; tokens: ProbeTokens; trusted: () => string },
): PublicProbes {
  const { options, addresses, onStop } = context;
  const { baseDomain, ports } = addresses;
  // Names of this machine need no DNS.
  const isLocal = baseDomain === 'localhost' || baseDomain.endsWith('.localhost');
  const probe = new PublicProbe({
    ownName: isLocal ? null : apiHost(baseDomain),
    resolvers: options.acme?.resolvers ?? null,
    ...{ tokens, trusted },
    here: { host: options.host, ports },
  });
  const probes = new PublicProbes(context, { chosen: options.probes ?? [], probe, live });
  probes.start();
  onStop(() => probes.stop());
  return probes;
}
