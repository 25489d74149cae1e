/* For `make STATIC=1`: the OpenSSL in the program does not read the machine's openssl.cnf, which is
 * written for another OpenSSL and may name modules that this one cannot load. */
#include <openssl/crypto.h>

__attribute__((constructor)) static void machine_config_skip(void)
{
    OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
}
