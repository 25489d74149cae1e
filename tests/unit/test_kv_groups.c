/* The size of a position's KV, computed by hand for a few shapes of models. */
#include "test.h"

#include "engine/kv_groups.h"

static struct layer_shape layers[4];

/* Four layers of 2 KV heads with keys of 8 and values of 6. */
static struct hparams plain_model(void)
{
    for (uint32_t i = 0; i < 4; i++)
        layers[i] = (struct layer_shape){
            .n_heads = 4, .n_kv_heads = 2, .key_dim = 8, .value_dim = 6, .kv_layer = i};
    return (struct hparams){.n_layers = 4, .layers = layers};
}

TEST(kv_groups, of_layers_that_see_all)
{
    struct kv_group g[KV_MAX_GROUPS];
    struct hparams h = plain_model();
    CHECK_INT(kv_groups(&h, KV_F32, g), 1);
    CHECK_INT(g[0].n_layers, 4);
    CHECK_INT(g[0].page_bytes, 4 * 2 * (8 + 6) * 4);
    CHECK_INT(g[0].window, 0);
    CHECK_INT(g[1].page_bytes, 0);
    CHECK_INT(kv_groups(&h, KV_BF16, g), 1);
    CHECK_INT(g[0].page_bytes, 4 * 2 * (8 + 6) * 2);
}

TEST(kv_groups, of_windows_and_shared_kv)
{
    struct kv_group g[KV_MAX_GROUPS];
    struct hparams h = plain_model();
    layers[0].window = 16;
    layers[0].key_dim = 10;
    layers[2].window = 32;
    layers[2].kv_layer = 0;
    layers[3].kv_layer = 1;
    CHECK_INT(kv_groups(&h, KV_F16, g), 2);
    CHECK_INT(g[0].n_layers, 1);
    CHECK_INT(g[0].page_bytes, 2 * (8 + 6) * 2);
    CHECK_INT(g[0].window, 0);
    CHECK_INT(g[1].n_layers, 1);
    CHECK_INT(g[1].page_bytes, 2 * (10 + 6) * 2);
    CHECK_INT(g[1].window, 32);
    CHECK_INT(g[1].kind, KV_WINDOW);
    CHECK_INT(kv_groups_join(g, 2), 1);
    CHECK_INT(g[0].n_layers, 2);
    layers[3].window = 3; /* of what it reads from a layer that sees all */
    kv_groups(&h, KV_F16, g);
    CHECK_INT(g[0].window, 0);
    CHECK_INT(kv_groups_join(g, 2), 1);
    CHECK_INT(g[0].page_bytes, 2 * (8 + 6) * 2 + 2 * (10 + 6) * 2);
    CHECK_INT(g[0].window, 0);
    CHECK_INT(g[1].n_layers + g[1].page_bytes + g[1].window, 0);

    for (int i = 0; i < 4; i++)
        layers[i].window = 5;
    CHECK_INT(kv_groups(&h, KV_F16, g), 2);
    CHECK_INT(g[0].n_layers, 0);
    CHECK_INT(g[0].page_bytes, 0);
    CHECK_INT(g[1].n_layers, 2);
}

TEST(kv_groups, of_a_latent)
{
    struct kv_group g[KV_MAX_GROUPS];
    struct hparams h = plain_model();
    h.mla = (struct mla_shape){.kv_rank = 20, .rope_dim = 4};
    for (int i = 0; i < 4; i++) {
        layers[i].n_kv_heads = 1;
        layers[i].key_dim = 24;
        layers[i].value_dim = 20;
    }
    CHECK_INT(kv_groups(&h, KV_F16, g), 1);
    CHECK_INT(g[0].page_bytes, 4 * 24 * 2);
}

TEST(kv_groups, more_bytes_than_can_be_counted)
{
    struct kv_group g[KV_MAX_GROUPS];
    struct hparams h = plain_model();
    for (int i = 0; i < 4; i++)
        layers[i].n_kv_heads = 1 << 28;
    kv_groups(&h, KV_F32, g);
    CHECK_INT(g[0].page_bytes, UINT32_MAX);
    layers[0].window = 3;
    kv_groups(&h, KV_F32, g);
    kv_groups_join(g, 2);
    CHECK_INT(g[0].page_bytes, UINT32_MAX);
}

TEST(kv_groups, a_state_is_not_joined)
{
    struct kv_group g[KV_MAX_GROUPS] = {{.n_layers = 1, .page_bytes = 100},
                                        {.kind = KV_WINDOW, .n_layers = 2, .page_bytes = 30},
                                        {.kind = KV_STATE, .n_layers = 3, .page_bytes = 7}};
    CHECK_INT(kv_groups_join(g, 3), 2);
    CHECK_INT(g[0].page_bytes, 130);
    CHECK_INT(g[1].kind, KV_STATE);
    CHECK_INT(g[1].page_bytes, 7);
    CHECK_INT(g[2].n_layers, 0);
    CHECK_INT(kv_groups_join(g, 2), 2);
}
