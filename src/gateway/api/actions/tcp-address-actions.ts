import { hostPort } from '../../../lib/network/ip-address.ts';
import { isWithin } from '../../../lib/network/port-range.ts';
import { reservedAddrs } from '../../../management/resources/reserved-addr.ts';
import type { Ref } from '../../../management/resources/resource.ts';
import { tcpPlace } from '../../endpoints/endpoint-address.ts';
import { portsInOrder } from '../../endpoints/tcp-port-allocator.ts';
import type { ApiContext } from '../api-context.ts';
import { refuse } from '../request.ts';
import { activeOwner } from './credential-actions.ts';
import { storedActions } from './stored-actions.ts';

export function tcpAddressActions(context: ApiContext) {
  const { store, links, addresses } = context;
  return {
    reservedAddrs: storedActions(context, {
      resource: reservedAddrs,
      rows: store.reservedAddrs,
      shown: ({ port, ...row }) => ({
        ...row,
        uri: links.of(reservedAddrs, row.id),
        addr: hostPort(addresses.tcpHost, port),
        region: '',
      }),
      make: (common, { owner_id }) => ({
        ...common,
        port: freeTcpPort(context),
        owner_id: activeOwner(context, owner_id),
      }),
    }),
  };
}

/** The reserved address with a port. */
export function tcpAddressAt({ store, links }: ApiContext, port: number): Ref | null {
  const row = store.reservedAddrs.by('port', port);
  return row && links.ref(reservedAddrs, row.id);
}

/** A port in no use that no invitation promises to devices. Ask in the transaction that takes it. @throws {ApiError} */
export function freeTcpPort({ store, live, tcpPorts }: Pick<ApiContext, 'store' | 'live' | 'tcpPorts'>): number {
  if (tcpPorts === null) throw refuse(400, 503, 'tcp endpoints are disabled on this gateway: GATEWAY_TCP_PORTS is off');
  const reserved = new Set(store.tcpPorts.reserved());
  const promised = store.enrolmentKeys.where('tcp_ports IS NOT NULL', []).flatMap((key) => key.tcp_ports ?? []);
  const isFree = (port: number) =>
    !reserved.has(port) && live.find.endpointsAt(tcpPlace(port)).length === 0 && !isWithin(port, promised);
  const port = portsInOrder(tcpPorts, store.tcpPorts.used()).find(isFree);
  if (port !== undefined) return port;
  throw refuse(400, 503, 'no tcp port is free: widen GATEWAY_TCP_PORTS, or delete reserved addresses');
}
