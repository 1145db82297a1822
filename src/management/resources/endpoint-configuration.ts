import { z } from 'zod';
import { ANNOTATIONS_ANSWER, annotations, body, COMMON_ANSWER } from './members.ts';

export const EndpointConfigurationCreate = body({ ...annotations(), type: z.enum(['http', 'https', 'tcp']) });
export interface EndpointConfigurationCreate extends z.input<typeof EndpointConfigurationCreate> {}

export const EndpointConfigurationUpdate = body(annotations());
export interface EndpointConfigurationUpdate extends z.input<typeof EndpointConfigurationUpdate> {}

/** A configuration that reserved domains reference in `http_` and `https_endpoint_configuration`. */
export const EndpointConfiguration = z.object({ ...COMMON_ANSWER, ...ANNOTATIONS_ANSWER, type: z.string() });
export interface EndpointConfiguration extends z.output<typeof EndpointConfiguration> {}

export const endpointConfigurations = {
  name: 'endpoint configuration',
  path: '/endpoint_configurations',
  idPrefix: 'ec_',
  listKey: 'endpoint_configurations',
  unknownIdCode: 1600,
  create: EndpointConfigurationCreate,
  update: EndpointConfigurationUpdate,
  answer: EndpointConfiguration,
};
