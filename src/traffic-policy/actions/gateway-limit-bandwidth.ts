import { z } from 'zod';
import { BANDWIDTH_FORM, type Bandwidth, parseBandwidth, SharedRate } from '../../lib/bandwidth.ts';
import { BoundedMap } from '../../lib/bounded-map.ts';
import { messageOf } from '../../lib/errors.ts';
import { clientNetwork } from '../../lib/network/ip-address.ts';
import type { ActionContext } from '../action-context.ts';
import { parseConfig } from '../action-problems.ts';
import type { ClientBandwidth } from '../policy-subjects.ts';
import type { PreparedAction } from '../steps.ts';

const LimitConfig = z.strictObject({
  bandwidth: z.string({ error: BANDWIDTH_FORM }).superRefine((text, context) => {
    try {
      parseBandwidth(text);
    } catch (error) {
      context.addIssue({ code: 'custom', message: messageOf(error) });
    }
  }),
});

/** Clients with a rate of their own. The one that has asked the longest ago is forgotten: its rate starts again. */
const MAX_CLIENTS = 1000;

/** The rates of clients, by their networks: what one address, or one IPv6 network of a customer, has at a time. */
class ClientRates {
  readonly #clients = new BoundedMap<string, ClientBandwidth>(MAX_CLIENTS);

  constructor(private readonly bandwidth: Bandwidth) {}

  of(network: string): ClientBandwidth {
    const { up, down } = this.bandwidth;
    const rates = this.#clients.get(network) ?? {
      up: up === null ? null : new SharedRate(up),
      down: down === null ? null : new SharedRate(down),
    };
    this.#clients.set(network, rates);
    return rates;
  }
}

/** Limits how much passes for the clients of one address, which is an action of our own. */
export function gatewayLimitBandwidth(config: unknown, { ports }: ActionContext): PreparedAction {
  const { bandwidth } = parseConfig(LimitConfig, config);
  const rates = ports.state.keep(ClientRates, [bandwidth], () => new ClientRates(parseBandwidth(bandwidth)));
  return {
    ends: false,
    on_tcp_connect: () => (connect) => {
      connect.connection.bandwidth = rates.of(clientNetwork(connect.connection.clientIp));
      return undefined;
    },
    on_http_request: () => (request) => {
      request.bandwidth = rates.of(clientNetwork(request.connection.clientIp));
      return undefined;
    },
  };
}
