import { readFileSync } from 'node:fs';
import { parse } from 'yaml';

export const COMPOSE_GATEWAYS = ['one', 'two', 'three'];

interface Compose {
  services: Record<string, { environment?: Record<string, string> }>;
}

/** The settings of the gateways in the example of a compose file, by their names; and the configuration of its balancer. */
export function clusterCompose(): { settings: Record<string, Record<string, string>>; balancer: string } {
  const text = readFileSync('examples/cluster/compose.yaml', 'utf8')
    .replaceAll(/\$\{GATEWAY_DOMAIN[^}]*\}/g, 'gateway.example.com')
    .replaceAll(/\$\{GATEWAY_ENCRYPTION_KEY[^}]*\}/g, Buffer.alloc(32).toString('base64'))
    .replaceAll(/\$\{POSTGRES_PASSWORD[^}]*\}/g, 'secret');
  const { services } = parse(text, { merge: true }) as Compose;
  return {
    settings: Object.fromEntries(COMPOSE_GATEWAYS.map((name) => [name, services[name]?.environment ?? {}])),
    balancer: readFileSync('examples/cluster/haproxy.cfg', 'utf8'),
  };
}
